"""Code of docs/python.md, for the tests that run it."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def code_blocks() -> list[str]:
    """Return the Python code blocks of the page in order. Later blocks use variables of earlier blocks."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
