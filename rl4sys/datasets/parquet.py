"""Parquet files with recorded steps, single or in a folder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rl4sys.datasets.table import KINDS, fail
from rl4sys.errors import ConfigError
from rl4sys.extras import needed_by
from rl4sys.spec import Array, Columns


class ParquetTable:
    """Columns of one or more Parquet files with equal columns. A cell may be a list or a nested list of numbers."""

    def __init__(self, title: Path, files: Sequence[Path]) -> None:
        with needed_by("a dataset in Parquet files", "save the dataset as .npz or .csv"):
            from pyarrow import parquet
        self.title, self._files, self._open = str(title), files, parquet.ParquetFile
        self._counts: list[int] = []
        """Number of rows of each file."""
        self.names: tuple[str, ...] = ()
        for path in files:
            self._add(path)

    def read(self, names: Sequence[str]) -> Columns:
        parts = [self._columns(number, names) for number in range(len(self._files))]
        return {name: self._joined(name, [part[name] for part in parts]) for name in names}

    def place(self, row: int) -> str:
        number = 0
        while row >= self._counts[number]:
            row -= self._counts[number]
            number += 1
        return f"row {row}" + (f" of {self._files[number].name}" if len(self._files) > 1 else "")

    def _add(self, path: Path) -> None:
        """Read the names of the columns of a file. Raises `ConfigError` if they differ from those of other files."""
        with self._reading(path), self._open(path) as file:
            names, rows = tuple(file.schema_arrow.names), file.metadata.num_rows
        self._counts.append(rows)
        self.names = self.names or names
        if set(names) != set(self.names):
            differing = ", ".join(sorted(set(names) ^ set(self.names)))
            raise ConfigError(
                f"the dataset {self.title} cannot be used: {path.name} and {self._files[0].name} have different "
                f"columns ({differing}); give files with the same columns"
            )

    def _columns(self, number: int, names: Sequence[str]) -> Columns:
        path, first = self._files[number], sum(self._counts[:number])
        with self._reading(path), self._open(path) as file:
            table = file.read(columns=list(names))
            return {name: self._array(name, table.column(name), first) for name in names}

    def _array(self, name: str, column: Any, first: int) -> Array:
        """Return a column as an array. ``first`` is the number of its first row."""
        import pyarrow as pa

        values = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        shape: list[int] = []
        while True:
            if isinstance(values, pa.ExtensionArray):
                values = values.storage
            self._check_complete(name, values, first, math.prod(shape))
            if not _is_list(values.type):
                break
            shape.append(self._length(name, values, first, math.prod(shape)))
            values = values.flatten()
        found = _to_numpy(values)
        if found.dtype.kind not in KINDS:
            raise ConfigError(
                f"the dataset {self.title} cannot be used: {name!r} has the type {column.type!s:.80}; expected "
                "numbers, or lists of numbers"
            )
        return found.reshape(len(column), *shape)

    def _check_complete(self, name: str, values: Any, first: int, per_row: int) -> None:
        """Raise `ConfigError` if values are missing. Each row has ``per_row`` of the values."""
        if values.null_count:
            index = int(np.flatnonzero(np.asarray(values.is_null()))[0])
            fail(self, first + index // per_row, f"{name!r} has no value")

    def _length(self, name: str, lists: Any, first: int, per_row: int) -> int:
        """Return the length of all lists of a column. Raises `ConfigError` if the lengths differ."""
        lengths = np.asarray(lists.value_lengths()) if hasattr(lists, "value_lengths") else np.zeros(0, int)
        if not len(lengths):
            return int(getattr(lists.type, "list_size", 0))
        wrong = np.flatnonzero(lengths != lengths[0])
        if len(wrong):
            found, expected = lengths[wrong[0]], lengths[0]
            fail(self, first + int(wrong[0]) // per_row, f"{name!r} has {found} values; the first row has {expected}")
        return int(lengths[0])

    def _joined(self, name: str, parts: list[Array]) -> Array:
        filled = [part for part in parts if len(part)] or parts[:1]
        shapes = {part.shape[1:] for part in filled}
        if len(shapes) > 1:
            raise ConfigError(
                f"the dataset {self.title} cannot be used: {name!r} has different shapes in its files: "
                f"{', '.join(map(str, sorted(shapes)))} per row"
            )
        return np.concatenate(filled)

    @contextmanager
    def _reading(self, path: Path) -> Iterator[None]:
        import pyarrow as pa

        try:
            yield
        except (OSError, ValueError, pa.ArrowException) as problem:
            raise ConfigError(
                f"the dataset {path} cannot be read; it is damaged or not a Parquet file ({problem!s:.200})"
            ) from problem


def parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder in the layout of Hugging Face datasets: those of the split train, or all."""
    found = sorted(path for path in (folder / "data").rglob("*.parquet") if path.is_file())
    found = found or sorted(folder.glob("*.parquet"))
    if not found:
        raise ConfigError(f"the dataset {folder} has no Parquet files; expected files such as {folder}/data/*.parquet")
    return [path for path in found if path.name.startswith("train-")] or found


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _to_numpy(values: Any) -> Array:
    """Convert an Arrow array without missing values; text becomes a NumPy array of text."""
    from pyarrow import types

    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if types.is_string(values.type) or types.is_large_string(values.type):
        return np.array(values.to_pylist(), np.str_)
    found: Array = values.to_numpy(zero_copy_only=False)
    return found
