"""Write docs/documents.md, the page with the equivalents of earlier names, from the ledger in tests/promises/ledger.

python scripts/promises_page.py            # write the page
python scripts/promises_page.py --check    # exit code 1 if the page is out of date
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.promises.ledger import Promise, read_ledger, titles  # noqa: E402 - needs the path above

PAGE = ROOT / "docs" / "documents.md"
INTRODUCTION = """# Equivalents of earlier names

On this page you can find the current equivalent of every command, flag, class, file and feature that is described in
five earlier documents. RL4Sys replaces the designs in these documents. For example:

    python scripts/train.py --config configs/experiments/ppo_cartpole.yaml    # command in a document
    rl4sys train ppo_cartpole                                                 # current equivalent

The documents are:

{contents}

*Unchanged* means that the command, flag, class or file works in a checkout of RL4Sys exactly as in the document. The
tests in `tests/promises` check every row. `scripts/promises_page.py` generates this page.
"""


def main() -> int:
    """Write the page, or compare it with the ledger; return the exit code."""
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
    headings = {name: f"{title[0].upper()}{title[1:]}" for name, title in titles().items()}
    contents = "\n".join(f"- [{heading}](#{_anchor(heading)})" for heading in headings.values())
    sections = [f"## {headings[name]}\n\n{table(rows)}" for name, rows in read_ledger().items()]
    return "\n".join([INTRODUCTION.format(contents=contents), *sections])


def table(rows: list[Promise]) -> str:
    """Return a Markdown table with one row per promise."""
    lines = ["| in the document | current equivalent | note |", "|---|---|---|"]
    lines += [f"| {_cell(row.shown or row.promise)} | {_cell(_now(row))} | {_cell(row.became)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub generates for a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _now(row: Promise) -> str:
    return f"not available yet; planned feature: {row.planned}" if row.planned else row.now


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    raise SystemExit(main())
