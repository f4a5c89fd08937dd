"""Write docs/documents.md from the ledger of promises in tests/promises/ledger.

python scripts/promises_page.py            # write the page
python scripts/promises_page.py --check    # exit code 1 if the page is out of date
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.promises.ledger import Promise, read_ledger, titles  # noqa: E402 - needs the path above

PAGE = ROOT / "docs" / "documents.md"
INTRODUCTION = """# If you come with one of the documents

This page lists each command, flag, class, file and feature of the documents that RL4Sys unites, with its place today.
"as typed" means that the line of the document works unchanged from a checkout. The rows are checked by
`tests/promises`; `scripts/promises_page.py` writes the page from the same data.
"""


def main() -> int:
    """Write or check the page and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare; exit code 1 if the page is out of date")
    text = page()
    if not parser.parse_args().check:
        PAGE.write_text(text)
        return 0
    if not PAGE.is_file() or PAGE.read_text() != text:
        print("docs/documents.md is out of date; run: python scripts/promises_page.py")
        return 1
    return 0


def page() -> str:
    """Return the text of the page."""
    sections = [
        f"## {titles()[name][0].upper()}{titles()[name][1:]}\n\n{table(rows)}" for name, rows in read_ledger().items()
    ]
    return "\n".join([INTRODUCTION, *sections])


def table(rows: list[Promise]) -> str:
    lines = ["| in the document | now | change |", "|---|---|---|"]
    return (
        "\n".join([*lines, *(f"| {_cell(row.promise)} | {_cell(_now(row))} | {_cell(row.became)} |" for row in rows)])
        + "\n"
    )


def _now(row: Promise) -> str:
    return f"planned, with {row.planned}" if row.planned else row.now


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    raise SystemExit(main())
