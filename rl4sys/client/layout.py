"""Conversion of observations to flat rows, and of recordings to encoded trajectories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl4sys.client.recording import Recording
from rl4sys.client.spaces import GYMNASIUM_MASK
from rl4sys.errors import SpecError
from rl4sys.policy.numpy_program import as_flat_row, as_mask
from rl4sys.spec import MASK, STATE, Array, Box, Spec, allows_some_action, encoded_size
from rl4sys.trajectory import MEMORY, OBSERVATION, Trajectory
from rl4sys.wire.trajectories import encode_trajectory


class Layout:
    """Flattens the named observations of a spec into one float32 row, and splits rows into named observations."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._boxes = {name: box for name, box in spec.observation.items() if name != MASK}
        self.size = sum(box.size for box in self._boxes.values())
        self.named = list(self._boxes) != [STATE]

    def row(self, observation: Any) -> Array:
        """Flatten an observation to one row. Named observations are given as a mapping."""
        if not self.named or not isinstance(observation, Mapping):
            return as_flat_row(observation, self.size)
        if set(observation) - {MASK, GYMNASIUM_MASK} != set(self._boxes):
            raise SpecError(f"the observation has the names {sorted(observation)}; expected {list(self._boxes)}")
        return np.concatenate([as_flat_row(observation[name], box.size) for name, box in self._boxes.items()])

    def mask_within(self, observation: Any) -> Any:
        """Return the action mask contained in a named observation, or None."""
        if not self._spec.masked or not isinstance(observation, Mapping):
            return None
        return observation.get(MASK, observation.get(GYMNASIUM_MASK))

    def observations(self, rows: Array) -> dict[str, Array]:
        """Split rows into observations by name, each with its own shape and dtype."""
        columns: dict[str, Array] = {}
        start = 0
        for name, box in self._boxes.items():
            part = rows[:, start : start + box.size].reshape(len(rows), *box.shape)
            columns[name] = np.ascontiguousarray(part, box.dtype)
            start += box.size
        return columns

    def encode(self, recording: Recording) -> bytes:
        rows = recording.columns
        observations = self.observations(rows["row"])
        if "mask" in rows:
            observations[MASK] = rows["mask"]
        action = self._spec.action
        columns = {f"{OBSERVATION}{name}": column for name, column in observations.items()}
        columns["action"] = rows["action"].reshape(recording.steps, *action.shape)
        columns |= {name: rows[name] for name in ("reward", "log_prob", MEMORY) if name in rows}
        trajectory = Trajectory(
            version=recording.version,
            columns=columns,
            episode=recording.episode,
            offset=recording.offset,
            terminated=recording.terminated,
            truncated=recording.truncated,
        )
        return encode_trajectory(trajectory, recording.sequence)

    def check_mask(self, mask: Array | None) -> None:
        """Raise `SpecError` unless the mask has the right shape and allows an action in each action dimension."""
        if mask is None:
            return
        action = self._spec.action
        if not self._spec.masked or isinstance(action, Box):
            raise SpecError("a mask was given, but the spec has no mask among its observations")
        if not allows_some_action(action, as_mask(mask, self._spec.observation[MASK].shape)):
            raise SpecError("the action mask allows no action; each action dimension needs at least one legal action")

    def mask(self, mask: Array | None) -> Array:
        """Return the mask as a batch of one row; None gives a mask that allows every action."""
        shape = self._spec.observation[MASK].shape
        return np.ones((1, *shape), np.bool_) if mask is None else mask.reshape(1, *shape)

    @property
    def step_bytes(self) -> int:
        """Approximate size of a step in bytes, in RAM and in a message."""
        action = self._spec.action
        return 4 * self.size + (encoded_size(action) if self._spec.masked else 0) + 8 * action.size + 8
