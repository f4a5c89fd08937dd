"""Components of docs/own_algorithm.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[2] / "docs" / "own_algorithm.md").read_text()


def code_of(heading: str) -> list[str]:
    """Return the Python blocks of a section of the page."""
    return re.findall(r"```python\n(.*?)```", section(heading), re.DOTALL)


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def component(heading: str, name: str) -> Any:
    """Return the class or function that the first block of a section defines, without registering it."""
    defined: dict[str, Any] = {"__name__": "__main__"}
    exec(re.sub(r"^@.*register.*\n", "", code_of(heading)[0], flags=re.MULTILINE), defined)
    return defined[name]
