"""Steps of a table as checked arrays with the shapes and dtypes of a spec."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl4sys.datasets.columns import Names, StepColumns
from rl4sys.datasets.csv_file import is_number
from rl4sys.datasets.table import Table, fail
from rl4sys.errors import ConfigError
from rl4sys.spec import (
    MASK,
    Array,
    Box,
    Columns,
    DiscreteSpace,
    Space,
    Spec,
    allows_some_action,
    is_allowed,
    mask_box,
    space_summary,
)

_FLAGS = {"true": True, "false": False}
"""Texts of booleans, in lowercase."""


@dataclass(frozen=True)
class Steps:
    """Recorded steps in the order of the table, one row per step in every array."""

    spec: Spec
    observation: Columns
    next_observation: Columns
    """Empty if observations after steps were not recorded."""
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    starts: Array
    """True for the first step of each episode, as far as the numbers of episodes show it."""

    def __len__(self) -> int:
        return len(self.reward)


def read_steps(table: Table, columns: StepColumns, observations: Mapping[str, Box] | None, action: Space) -> Steps:
    """Read and check the steps of a table. Raises `ConfigError` with the first row that cannot be used.

    ``observations`` are the expected observations by name. If they are None, their shapes follow from the table.
    """
    reader = _Reader(table, columns)
    boxes = observations or {name: reader.box(name, of, action) for name, of in columns.observation.items()}
    truncated = reader.flags("truncated", columns.truncated or False)
    steps = Steps(
        spec=Spec(boxes, action),
        observation={name: reader.boxed("observation", columns.observation[name], box) for name, box in boxes.items()},
        next_observation={
            name: reader.boxed("next_observation", of, boxes[name]) for name, of in columns.next_observation.items()
        },
        action=reader.actions(columns.action, action),
        reward=reader.rewards(columns.reward),
        # Recordings with one flag for both mark a truncated step as done, too.
        terminated=reader.flags("terminated", columns.terminated) & ~truncated,
        truncated=truncated,
        starts=reader.starts(columns.episode),
    )
    if MASK in boxes and not isinstance(action, Box):
        reader.check_mask(action, steps)
    return steps


class _Reader:
    """Columns of a table, converted and checked. Errors name the first row that cannot be used."""

    def __init__(self, table: Table, columns: StepColumns) -> None:
        self._table, self._columns = table, table.read(columns.names())
        lengths = {name: len(column) for name, column in self._columns.items()}
        self._rows = max(lengths.values())
        if min(lengths.values()) < self._rows:
            found = ", ".join(f"{name} has {length:,}" for name, length in lengths.items())
            raise ConfigError(
                f"the dataset {table.title} cannot be used: its columns have different numbers of rows ({found}); "
                "every column needs one row per step"
            )
        if self._rows == 0:
            raise ConfigError(f"the dataset {table.title} is empty: its columns have no rows")

    def box(self, name: str, columns: Names, action: Space) -> Box:
        """Return the space of an observation with the shape of its columns; images and booleans keep their dtype."""
        if name == MASK and not isinstance(action, Box):
            return mask_box(action)
        values = self._joined(columns)
        dtype = str(values.dtype) if values.dtype in (np.uint8, np.bool_) else "float32"
        return Box(values.shape[1:] or (1,), dtype)

    def boxed(self, part: str, columns: Names, box: Box) -> Array:
        """Return columns with the shape and the dtype of a box. Bounds are not checked."""
        values = self._shaped(part, columns, box.shape)
        with np.errstate(invalid="ignore", over="ignore"):
            converted = values.astype(box.dtype)
        self._check(
            converted == values if converted.dtype.kind in "biu" else np.isfinite(converted),
            lambda row: f"the {part} is {_shown(values[row])}, which does not fit the type {box.dtype}",
        )
        return converted

    def actions(self, columns: Names, space: Space) -> Array:
        """Return the actions. Raises `ConfigError` if one is outside the action space."""
        if isinstance(space, Box):
            actions = self.boxed("action", columns, space)
            low, high = space.bounds()
            self._check(
                (actions >= low) & (actions <= high),
                lambda row: (
                    f"the action {_shown(actions[row])} is outside its bounds, {_shown(low)} to {_shown(high)}; "
                    "record the action that the system received, within the bounds"
                ),
            )
            return actions
        values = self._shaped("action", columns, space.shape)
        with np.errstate(invalid="ignore"):
            actions = values.astype(space.dtype)
        legal = (actions == values) & (actions >= 0) & (actions < np.reshape(space.parts, space.shape))
        last = ", ".join(str(n - 1) for n in space.parts)
        self._check(
            legal,
            lambda row: (
                f"the action {_shown(values[row])} is outside {space_summary(space)}; "
                f"expected integers from 0 to {last}"
            ),
        )
        return actions

    def rewards(self, column: str | float) -> Array:
        if isinstance(column, str):
            return self.boxed("reward", (column,), Box(()))
        return np.full(self._rows, column, np.float32)

    def flags(self, part: str, column: str | bool) -> Array:
        """Return a column of booleans, or the same boolean for all rows."""
        if not isinstance(column, str):
            return np.full(self._rows, column)
        values = self._shaped(part, (column,), ())
        self._check(
            (values == 0) | (values == 1),
            lambda row: f"{column!r} is {_shown(values[row])}; expected 0, 1, true or false",
        )
        return values.astype(bool)

    def starts(self, column: str | None) -> Array:
        """Return True for each row whose episode differs from that of the row before."""
        starts = np.zeros(self._rows, bool)
        starts[0] = True
        if column is None:
            return starts
        values = self._columns[column] if self._columns[column].dtype.kind == "U" else self._numbers(column)
        labels = self._reshaped("episode", (column,), values, ())
        starts[1:] = labels[1:] != labels[:-1]
        first_rows = np.flatnonzero(starts)
        _, first_uses = np.unique(labels[first_rows], return_index=True)
        repeated = np.setdiff1d(np.arange(len(first_rows)), first_uses)
        if len(repeated):
            row = int(first_rows[repeated[0]])
            text = f"episode {labels[row]!s:.40} continues after another episode; sort the rows by episode"
            fail(self._table, row, text)
        return starts

    def check_mask(self, space: DiscreteSpace, steps: Steps) -> None:
        """Raise `ConfigError` if a mask allows no action, or not the recorded action."""
        mask, rows = steps.observation[MASK], range(self._rows)
        if not allows_some_action(space, mask):
            row = next(row for row in rows if not allows_some_action(space, mask[row : row + 1]))
            fail(self._table, row, "the action mask allows no action")
        if not is_allowed(space, steps.action, mask):
            row = next(r for r in rows if not is_allowed(space, steps.action[r : r + 1], mask[r : r + 1]))
            fail(self._table, row, f"the action mask does not allow the action {_shown(steps.action[row])}")

    def _shaped(self, part: str, columns: Names, shape: tuple[int, ...]) -> Array:
        return self._reshaped(part, columns, self._joined(columns), shape)

    def _reshaped(self, part: str, columns: Names, values: Array, shape: tuple[int, ...]) -> Array:
        """Return values with ``shape`` per row. A flat row is accepted for any shape of the same size."""
        given = values.shape[1:]
        if given == shape or (len(given) <= 1 and math.prod(given) == math.prod(shape)):
            return values.reshape(len(values), *shape)
        raise ConfigError(
            f"the dataset {self._table.title} cannot be used: the {part} ({', '.join(columns)}) has the shape {given} "
            f"per row; expected {shape}"
        )

    def _joined(self, columns: Names) -> Array:
        """Return one column, or several columns as vectors."""
        values = [self._numbers(column) for column in columns]
        return values[0] if len(values) == 1 else np.concatenate([v.reshape(self._rows, -1) for v in values], axis=1)

    def _numbers(self, column: str) -> Array:
        """Return a column as finite numbers."""
        values = self._columns[column]
        if values.dtype.kind == "U":
            values = self._parsed(column, values)
        self._check(np.isfinite(values), lambda row: f"{column!r} is {_shown(values[row])}; expected finite numbers")
        return values

    def _parsed(self, column: str, texts: Array) -> Array:
        """Return a column of texts as numbers; true and false are 1 and 0."""
        numbers = np.zeros(texts.size)
        for index, text in enumerate(texts.ravel().tolist()):
            flag = _FLAGS.get(text.strip().lower())
            if flag is None and not is_number(text):
                found = repr(text[:40]) if text.strip() else "empty"
                fail(self._table, index * self._rows // texts.size, f"{column!r} is {found}; expected a number")
            numbers[index] = float(text) if flag is None else flag
        return numbers.reshape(texts.shape)

    def _check(self, valid: Array, explain: Callable[[int], str]) -> None:
        """Raise `ConfigError` for the first row with a False in ``valid``, and count these rows."""
        wrong = np.flatnonzero(~valid.reshape(self._rows, -1).all(axis=1))
        if len(wrong):
            others = f" ({len(wrong):,} such rows)" if len(wrong) > 1 else ""
            fail(self._table, int(wrong[0]), explain(int(wrong[0])) + others)


def _shown(values: Any) -> str:
    """Return a value or the first values of an array as short text."""
    flat = np.ravel(values).tolist()
    texts = [f"{value:.6g}" for value in flat[:8]] + ["..."] * (len(flat) > 8)
    return texts[0] if np.ndim(values) == 0 else f"[{', '.join(texts)}]"
