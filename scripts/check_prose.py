"""Check that docstrings and comments do not start with a question word, and that prose contains no words to avoid.

    python scripts/check_prose.py            # exit code 1 if there are violations
    python scripts/check_prose.py --report   # also print the rate of what/that/which per 100 words

A docstring or comment should start with a noun phrase or a verb, not with a question word ("Whether the ...").
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
OPENINGS = re.compile(r"(What|Whether|How|Where|Who|Whom|Whose|Which|When|Why)\b")
AVOIDED = re.compile(
    r"\b(anew|on the moon|so many numbers|the words of|to be had|is the matter|such a one|spoilt|mended)\b",
    re.IGNORECASE,
)
RELATIVES = re.compile(r"\b(what|that|which)\b", re.IGNORECASE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Passage:
    """Text to check: a docstring, a block of comment lines or a Markdown page."""

    path: Path
    line: int
    text: str
    is_page: bool = False

    def problem(self) -> str | None:
        """Return a description of the first violation, or None."""
        avoided = AVOIDED.search(self.text)
        if avoided:
            return f"avoid {avoided[0]!r}"
        opening = None if self.is_page else OPENINGS.match(self.text)
        return f"opens with {opening[0]!r}; say what it is or does" if opening else None


def passages(path: Path) -> Iterator[Passage]:
    """Yield all docstrings and comments of a source file, or the text of a Markdown page."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from _docstrings(path, text)
        yield from _python_comments(path, text)
    elif path.suffix in (".hpp", ".cpp", ".proto"):
        yield from _blocks(path, [(i, m[1]) for i, line in enumerate(text.split("\n"), 1) if (m := _CPP.match(line))])
    elif path.suffix in (".yaml", ".yml", ".sh"):
        yield from _blocks(path, [(i, m[1]) for i, line in enumerate(text.split("\n"), 1) if (m := _HASH.match(line))])
    else:
        yield Passage(path, 1, re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL), is_page=True)


_CPP = re.compile(r"\s*//[/!]?<?\s*(.*)")
_HASH = re.compile(r"\s*#\s+(.*)")


def _docstrings(path: Path, text: str) -> Iterator[Passage]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, _DOCUMENTED):
            continue
        for child in node.body:
            # Docstrings, and strings below a field that document it.
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                yield Passage(path, child.lineno, child.value.value.strip())


def _python_comments(path: Path, text: str) -> Iterator[Passage]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = [(token.start[0], token.string.lstrip("# ")) for token in tokens if token.type == tokenize.COMMENT]
    yield from _blocks(path, lines)


def _blocks(path: Path, lines: list[tuple[int, str]]) -> Iterator[Passage]:
    """Yield one passage for each block of comments on consecutive lines."""
    block: list[str] = []
    start = previous = -1
    for number, line in lines:
        if block and number != previous + 1:
            yield Passage(path, start, " ".join(block))
            block = []
        start = start if block else number
        block.append(line)
        previous = number
    if block:
        yield Passage(path, start, " ".join(block))


def tracked_files() -> list[Path]:
    """Return the tracked and new files that contain prose."""
    suffixes = ["*.py", "*.hpp", "*.cpp", "*.proto", "*.md", "*.yaml", "*.yml", "*.sh"]
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *suffixes]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    skipped = (Path("tests/data"), Path("cpp/tests/data"))
    paths = [Path(name) for name in dict.fromkeys(names) if (ROOT / name).is_file()]
    return [
        path for path in paths if path != Path("scripts/check_prose.py") and not any(s in path.parents for s in skipped)
    ]


def main() -> int:
    """Print all violations and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", action="store_true", help="print the rate of what/that/which per 100 words")
    report = parser.parse_args().report
    found = [passage for path in tracked_files() for passage in passages(path)]
    problems = [(passage, problem) for passage in found if (problem := passage.problem())]
    for passage, problem in problems:
        print(f"{passage.path}:{passage.line}: {problem}: {passage.text[:80]!r}")
    if report:
        for name, chosen in (("code", [p for p in found if not p.is_page]), ("docs", [p for p in found if p.is_page])):
            text = " ".join(passage.text for passage in chosen)
            rate = 100 * len(RELATIVES.findall(text)) / max(len(text.split()), 1)
            print(f"{name}: {len(chosen)} passages, {rate:.2f} of what/that/which per 100 words")
    print(f"prose: {len(problems)} problems in {len(found)} passages")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
