"""From a recorder's rows to the bytes of a trajectory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl4sys.client.spaces import GYMNASIUM_MASK
from rl4sys.errors import SpecError
from rl4sys.policy.numpy_form import as_flat_row, as_mask
from rl4sys.spec import MASK, STATE, Array, Box, Columns, Spec, leaves_choice, numbers_of
from rl4sys.trajectory import MEMORY, OBSERVATION, Trajectory
from rl4sys.wire.trajectories import encode_trajectory


@dataclass(frozen=True)
class Fragment:
    """Consecutive steps as a recorder gave them, and where they belong."""

    rows: Columns
    version: int
    episode: int
    offset: int
    terminated: bool = False
    truncated: bool = False

    @property
    def steps(self) -> int:
        return len(self.rows["reward"])

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return sum(column.nbytes for column in self.rows.values())

    def without_last_step(self) -> Fragment:
        """What remains where the last action's outcome is unknown: the last observation closes it."""
        rows = {name: column if name == MEMORY else column[:-1] for name, column in self.rows.items()}
        return Fragment(rows, self.version, self.episode, self.offset)


class Layout:
    """How the observations of a spec lie side by side in a row of numbers."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._boxes = {name: box for name, box in spec.observation.items() if name != MASK}
        self.size = sum(box.size for box in self._boxes.values())
        self.named = list(self._boxes) != [STATE]

    def row(self, observation: Any) -> Array:
        """One observation, a mapping where the spec has names, as the row that a recorder takes."""
        if not self.named or not isinstance(observation, Mapping):
            return as_flat_row(observation, self.size)
        if set(observation) - {MASK, GYMNASIUM_MASK} != set(self._boxes):
            raise SpecError(f"an observation of {sorted(observation)} was given; expected {list(self._boxes)}")
        return np.concatenate([as_flat_row(observation[name], box.size) for name, box in self._boxes.items()])

    def mask_within(self, observation: Any) -> Any:
        """The mask that came as part of an observation by name, if one did."""
        if not self._spec.masked or not isinstance(observation, Mapping):
            return None
        return observation.get(MASK, observation.get(GYMNASIUM_MASK))

    def observations(self, rows: Array) -> dict[str, Array]:
        """The observations of many rows by name, in their own shapes and types."""
        columns: dict[str, Array] = {}
        start = 0
        for name, box in self._boxes.items():
            part = rows[:, start : start + box.size].reshape(len(rows), *box.shape)
            columns[name] = np.ascontiguousarray(part, box.dtype)
            start += box.size
        return columns

    def encode(self, fragment: Fragment, sequence: int) -> bytes:
        rows = fragment.rows
        observations = self.observations(rows["row"])
        if "mask" in rows:
            observations[MASK] = rows["mask"]
        action = self._spec.action
        columns = {f"{OBSERVATION}{name}": column for name, column in observations.items()}
        columns["action"] = rows["action"].reshape(fragment.steps, *action.shape)
        columns |= {name: rows[name] for name in ("reward", "log_prob", MEMORY) if name in rows}
        trajectory = Trajectory(
            version=fragment.version,
            columns=columns,
            episode=fragment.episode,
            offset=fragment.offset,
            terminated=fragment.terminated,
            truncated=fragment.truncated,
        )
        return encode_trajectory(trajectory, sequence)

    def check_mask(self, mask: Array | None) -> None:
        """`SpecError` unless it fits and leaves something to choose."""
        if mask is None:
            return
        action = self._spec.action
        if not self._spec.masked or isinstance(action, Box):
            raise SpecError("a mask was given, but the spec has no mask among its observations")
        if not leaves_choice(action, as_mask(mask, self._spec.observation[MASK].shape)):
            raise SpecError("the mask allows no action at all; at least one choice of each part must be legal")

    def mask(self, mask: Array | None) -> Array:
        """A row of the mask; None allows everything."""
        shape = self._spec.observation[MASK].shape
        return np.ones((1, *shape), np.bool_) if mask is None else mask.reshape(1, *shape)

    @property
    def step_bytes(self) -> int:
        """What a step takes in memory, and about that on the wire."""
        action = self._spec.action
        return 4 * self.size + (numbers_of(action) if self._spec.masked else 0) + 8 * action.size + 8
