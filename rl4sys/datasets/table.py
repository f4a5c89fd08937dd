"""Table of recorded steps: named columns of a file or folder, with one row per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol

from rl4sys.errors import ConfigError
from rl4sys.spec import Columns

KINDS = "biufU"
"""Kinds of dtypes that a column may have: booleans, numbers and text."""


class Table(Protocol):
    """Named columns of a file or folder. The constructors raise `ConfigError` if it cannot be read."""

    @property
    def title(self) -> str:
        """Path of the file or folder."""
        ...

    @property
    def names(self) -> tuple[str, ...]: ...

    def read(self, names: Sequence[str]) -> Columns:
        """Return columns of numbers, booleans or text. Raises `ConfigError` if they cannot be read."""
        ...

    def place(self, row: int) -> str:
        """Return the position of a row of the columns last read, for error messages."""
        ...


def fail(table: Table, row: int, text: str) -> NoReturn:
    """Raise the error that a row of a table cannot be used."""
    raise ConfigError(f"the dataset {table.title} cannot be used: in {table.place(row)}, {text}")
