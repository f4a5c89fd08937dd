"""Conversion between Gymnasium spaces and `Spec`, and between observations and columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from rl4sys.environments.base import Environment
from rl4sys.errors import SpecError
from rl4sys.spec import MASK, STATE, Array, Box, Discrete, MultiDiscrete, Space, Spec, mask_box

INFO_MASK = "action_mask"
"""Key of the action mask in info or in a Dict observation, by Gymnasium convention."""


class Encoding:
    """Encodes the observations of an environment as columns, and decodes actions."""

    def __init__(self, environment: Environment) -> None:
        parts = observation_parts(environment.observation_space)
        _, info = environment.reset(seed=0)
        self._mask_in_info = INFO_MASK in info
        self._mask_in_observation = INFO_MASK in parts
        self._parts = {name: part for name, part in parts.items() if name != INFO_MASK}
        self._writers = {name: _writer(part) for name, part in self._parts.items()}
        self._plain = isinstance(environment.observation_space, spaces.Box) and not self._mask_in_info
        self.spec = self._make_spec(environment.action_space)
        self._actions = environment.action_space

    def empty(self, rows: int) -> dict[str, Array]:
        """Return zeroed columns for ``rows`` observations."""
        return {name: np.zeros((rows, *box.shape), box.dtype) for name, box in self.spec.observation.items()}

    def write(self, columns: Mapping[str, Array], row: int, observation: Any, info: Mapping[str, Any]) -> None:
        """Write one observation and its action mask to row ``row`` of the columns."""
        if self._plain:
            columns[STATE][row] = observation
            return
        for name, write in self._writers.items():
            write(columns[name], row, observation)
        if self._mask_in_info:
            columns[MASK][row] = flatten_mask(info[INFO_MASK])
        elif self._mask_in_observation:
            columns[MASK][row] = observation[INFO_MASK]

    def decode_actions(self, actions: Array) -> list[Any]:
        """Convert the policy's actions to actions of the environment's space, one per row."""
        return to_space_actions(self._actions, actions)

    def encode(self, observations: Any, infos: Mapping[str, Any]) -> dict[str, Array]:
        """Encode a batch of observations, given as one tree of arrays with the structure of a single observation."""
        columns = {name: _rows(part, observations) for name, part in self._parts.items()}
        if self._mask_in_info:
            columns[MASK] = np.asarray(infos[INFO_MASK], bool)
        elif self._mask_in_observation:
            columns[MASK] = np.asarray(observations[INFO_MASK], bool)
        return columns

    def encode_actions(self, actions: Array) -> Array:
        """Convert actions of the environment's space to actions of the policy."""
        start = self._actions.start if isinstance(self._actions, spaces.Discrete) else 0
        return (actions - start).astype(self.spec.action.dtype)

    def _make_spec(self, action_space: spaces.Space[Any]) -> Spec:
        observation = {name: _box(part.space) for name, part in self._parts.items()}
        action = action_space_of(action_space)
        if self._mask_in_info or self._mask_in_observation:
            if isinstance(action, Box):
                raise SpecError(
                    f"the environment has an action mask, but its actions are {action_space}; "
                    "only discrete actions can be masked"
                )
            observation[MASK] = mask_box(action)
        return Spec(observation, action)


class Part(NamedTuple):
    """Leaf of a nested observation space, with the keys that lead to it."""

    space: spaces.Space[Any]
    path: tuple[Any, ...] = ()

    def of(self, observation: Any) -> Any:
        for key in self.path:
            observation = observation[key]
        return observation


def observation_parts(space: spaces.Space[Any]) -> dict[str, Part]:
    """Return the leaves of a nested observation space by name: keys (indices for a Tuple) joined by dots."""
    leaves = list(_leaves(Part(space)))
    names = [".".join(str(key) for key in leaf.path) or STATE for leaf in leaves]
    duplicates = [name for name in names if names.count(name) > 1]
    if duplicates:
        raise SpecError(f"two observations would be named {duplicates[0]!r}; rename one in the environment's space")
    return dict(zip(names, leaves, strict=True))


def _leaves(part: Part) -> Iterator[Part]:
    if not isinstance(part.space, spaces.Dict | spaces.Tuple):
        yield part
        return
    inner = part.space.spaces
    for key, space in inner.items() if isinstance(inner, Mapping) else enumerate(inner):
        yield from _leaves(Part(space, (*part.path, key)))


def _box(space: spaces.Space[Any]) -> Box:
    if isinstance(space, spaces.Box):
        dtype = "float32" if space.dtype.kind == "f" else str(space.dtype)
        return Box(space.shape, dtype, _bound(space.low), _bound(space.high))
    try:
        return Box((spaces.flatdim(space),))
    except (NotImplementedError, ValueError) as problem:
        raise SpecError(f"observations of {space} cannot be encoded as numbers: {problem}") from problem


def action_space_of(space: spaces.Space[Any]) -> Space:
    """Convert a Gymnasium action space. Raises SpecError if it is not supported."""
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiDiscrete(tuple(space.nvec.ravel().tolist()))
    if isinstance(space, spaces.MultiBinary):
        return MultiDiscrete((2,) * math.prod(space.shape))
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        return Box(space.shape, "float32", _bound(space.low), _bound(space.high))
    note = " (integers)" if isinstance(space, spaces.Box) else ""
    raise SpecError(
        f"actions of {space}{note} are not supported; use Discrete, MultiDiscrete, MultiBinary, or Box of floats"
    )


def to_gymnasium(space: Space) -> spaces.Space[Any]:
    """Convert a space of a spec to a Gymnasium space; a `Box` of booleans becomes MultiBinary."""
    if isinstance(space, Discrete):
        return spaces.Discrete(space.choices)
    if isinstance(space, MultiDiscrete):
        return spaces.MultiDiscrete(list(space.choices))
    if space.dtype == "bool":
        return spaces.MultiBinary(space.shape)
    dtype = np.dtype(space.dtype)
    low, high = space.bounds()
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        low, high = _whole(low, limits.min, dtype), _whole(high, limits.max, dtype)
    return spaces.Box(low, high, dtype=dtype.type)


def _whole(bound: Array, limit: int, dtype: np.dtype[Any]) -> Array:
    """Convert the bounds of a space to an integer type; the limit of the type replaces infinity."""
    finite = np.isfinite(bound)
    whole = np.where(finite, bound, 0).astype(dtype)
    whole[~finite] = limit
    return whole


def to_space_actions(space: spaces.Space[Any], actions: Array) -> list[Any]:
    """Convert actions of the policy to elements of the environment's action space, one per row."""
    if isinstance(space, spaces.Discrete):
        return list((actions + space.start if space.start else actions).tolist())
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        first = space.start if isinstance(space, spaces.MultiDiscrete) else 0
        return list((actions.reshape(len(actions), *space.shape) + first).astype(space.dtype))
    assert isinstance(space, spaces.Box)  # checked by `action_space_of`
    # Clip to the environment's own bounds: those of the spec are float32 and may be rounded outwards.
    return list(np.clip(actions.astype(space.dtype), space.low, space.high))


def flatten_mask(mask: Any) -> Array:
    """Flatten an action mask. A tuple with one mask per MultiDiscrete dimension is concatenated."""
    return np.concatenate([np.ravel(part) for part in mask]) if isinstance(mask, tuple) else np.asarray(mask)


def _bound(values: Array) -> tuple[float, ...]:
    flat = [float(v) for v in values.ravel()]
    return (flat[0],) if flat and all(v == flat[0] for v in flat) else tuple(flat)


def _rows(part: Part, observations: Any) -> Array:
    """Return the leaf ``part`` of a batch of observations, with one row per observation."""
    values, box = part.of(observations), _box(part.space)
    if not isinstance(part.space, spaces.Box):
        values = [spaces.flatten(part.space, value) for value in values]
    return np.asarray(values, box.dtype).reshape(-1, *box.shape)


def _writer(part: Part) -> Callable[[Array, int, Any], None]:
    """Return a function that writes the leaf ``part`` of an observation to a row.

    Box values are copied; values of other spaces are flattened, and discrete values become one-hot vectors.
    """

    def write(column: Array, row: int, observation: Any) -> None:
        value = part.of(observation)
        column[row] = value if is_box else spaces.flatten(part.space, value)

    is_box = isinstance(part.space, spaces.Box)
    return write
