"""CSV files with recorded steps."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from rl4sys.datasets.table import fail
from rl4sys.errors import ConfigError
from rl4sys.spec import Array, Columns

_CHUNK_ROWS = 10_000
"""Number of rows that are in RAM as text at the same time."""

_DELIMITERS = ",;\t"


class CsvTable:
    """Columns of a text file with a header. Values are separated by commas, semicolons or tabs."""

    def __init__(self, path: Path) -> None:
        self.title, self._path = str(path), path
        _, header = next(self._records(), (0, []))
        if not header:
            raise ConfigError(f"the dataset {path} is empty; expected a header with the names of the columns")
        self.names = tuple(name.strip() for name in header)
        repeated = next((name for name in self.names if self.names.count(name) > 1), None)
        if repeated is not None:
            raise ConfigError(f"the dataset {path} has several columns named {repeated!r}; rename them in the header")
        self._lines = array("Q")
        """Line of each row in the file; blank lines are not rows."""

    def read(self, names: Sequence[str]) -> Columns:
        places = [self.names.index(name) for name in names]
        columns: list[list[Array]] = [[] for _ in names]
        self._lines = array("Q")
        records = islice(self._records(), 1, None)
        while rows := [self._checked(*record) for record in islice(records, _CHUNK_ROWS)]:
            for column, place in zip(columns, places, strict=True):
                column.append(_numbers_or_text([row[place] for row in rows]))
        return {name: self._joined(name, column) for name, column in zip(names, columns, strict=True)}

    def place(self, row: int) -> str:
        return f"line {self._lines[row]}"

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the line number and the values of each row, including the header."""
        try:
            with self._path.open(newline="", encoding="utf-8-sig") as file:
                header = file.readline()
                file.seek(0)
                reader = csv.reader(file, delimiter=max(_DELIMITERS, key=header.count), strict=True)
                yield from ((reader.line_num, row) for row in reader if row)
        except (OSError, UnicodeDecodeError, csv.Error) as problem:
            raise ConfigError(
                f"the dataset {self.title} cannot be read; it is damaged or not a CSV file in UTF-8 ({problem})"
            ) from problem

    def _checked(self, line: int, row: list[str]) -> list[str]:
        """Return a row after noting its line. Raises `ConfigError` unless it has a value for each column."""
        self._lines.append(line)
        if len(row) != len(self.names):
            fail(self, len(self._lines) - 1, f"there are {len(row)} values; the header has {len(self.names)} columns")
        return row

    def _joined(self, name: str, chunks: list[Array]) -> Array:
        """Join the chunks of a column, which are either all numbers or all text."""
        kinds = [chunk.dtype.kind for chunk in chunks]
        if len(set(kinds)) > 1:
            number = kinds.index("U")
            row = next((row for row, text in enumerate(chunks[number].tolist()) if not is_number(text)), 0)
            fail(
                self,
                number * _CHUNK_ROWS + row,
                f"{name!r} is {chunks[number][row]!s:.40}; expected a number, as in the other rows",
            )
        return np.concatenate(chunks) if chunks else np.zeros(0)


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers_or_text(values: list[str]) -> Array:
    """Return the values as numbers if all of them are numbers, else as text."""
    try:
        return np.array(values, np.float64)
    except ValueError:
        return np.array(values, np.str_)
