"""NumPy archives (.npz) with recorded steps."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rl4sys.datasets.table import KINDS
from rl4sys.errors import ConfigError
from rl4sys.spec import Array, Columns

Result = TypeVar("Result")

_DAMAGED = (EOFError, KeyError, MemoryError, OSError, TypeError, ValueError, NotImplementedError)


class NpzTable:
    """Arrays of an .npz file. Arrays of Python objects are rejected, because reading them could run code."""

    def __init__(self, path: Path) -> None:
        self.title, self._path = str(path), path
        self.names: tuple[str, ...] = self._reading(lambda archive: tuple(archive.files))

    def read(self, names: Sequence[str]) -> Columns:
        return self._reading(lambda archive: {name: self._column(archive, name) for name in names})

    def place(self, row: int) -> str:
        return f"row {row}"

    def _reading(self, read: Callable[[Any], Result]) -> Result:
        try:
            # numpy does not close a damaged file that it opened itself.
            with self._path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                return read(archive)
        except (*_DAMAGED, AttributeError, zipfile.BadZipFile, zlib.error) as problem:
            raise ConfigError(
                f"the dataset {self.title} cannot be read; it is damaged or not an .npz file, which numpy.savez writes "
                f"({problem!s:.200})"
            ) from problem

    def _column(self, archive: Any, name: str) -> Array:
        try:
            column = archive[name]
        except ValueError as problem:
            if "allow_pickle" not in str(problem):
                raise
            raise ConfigError(
                f"the dataset {self.title} cannot be used: {name!r} contains Python objects, and reading them could "
                "run code; save it as an array of numbers"
            ) from problem
        if isinstance(column, np.ndarray) and column.dtype.kind in KINDS and column.ndim > 0:
            return column
        found = f"{column.dtype} of shape {column.shape}" if isinstance(column, np.ndarray) else "not an array"
        raise ConfigError(
            f"the dataset {self.title} cannot be used: {name!r} is {found}; expected numbers with one row per step"
        )
