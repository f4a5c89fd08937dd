"""Gymnasium's spaces ⇄ our Spec, and observations written as rows of columns."""

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
"""Where Gymnasium environments by custom put the mask of legal actions: in info, or in a Dict observation."""


class Encoding:
    """How one kind of environment's observations and actions stand in columns."""

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
        """Columns for ``rows`` observations."""
        return {name: np.zeros((rows, *box.shape), box.dtype) for name, box in self.spec.observation.items()}

    def write(self, columns: Mapping[str, Array], row: int, observation: Any, info: Mapping[str, Any]) -> None:
        """Put one observation, and the mask that came with it, into a row."""
        if self._plain:
            columns[STATE][row] = observation
            return
        for name, write in self._writers.items():
            write(columns[name], row, observation)
        if self._mask_in_info:
            columns[MASK][row] = flat_mask(info[INFO_MASK])
        elif self._mask_in_observation:
            columns[MASK][row] = observation[INFO_MASK]

    def to_system(self, actions: Array) -> list[Any]:
        """The drawn actions as the environments take them, one each."""
        return given_actions(self._actions, actions)

    def encode(self, observations: Any, infos: Mapping[str, Any]) -> dict[str, Array]:
        """Columns of many observations, which are given as columns themselves: a tree like a single one's."""
        columns = {name: _rows(part, observations) for name, part in self._parts.items()}
        if self._mask_in_info:
            columns[MASK] = np.asarray(infos[INFO_MASK], bool)
        elif self._mask_in_observation:
            columns[MASK] = np.asarray(observations[INFO_MASK], bool)
        return columns

    def from_system(self, actions: Array) -> Array:
        """Actions that environments were given, as if a policy had drawn them."""
        start = self._actions.start if isinstance(self._actions, spaces.Discrete) else 0
        return (actions - start).astype(self.spec.action.dtype)

    def _make_spec(self, action_space: spaces.Space[Any]) -> Spec:
        observation = {name: _box(part.space) for name, part in self._parts.items()}
        action = action_of(action_space)
        if self._mask_in_info or self._mask_in_observation:
            if isinstance(action, Box):
                raise SpecError(f"the environment gives an action mask, but its actions are {action_space}")
            observation[MASK] = mask_box(action)
        return Spec(observation, action)


class Part(NamedTuple):
    """A space within the observation, and the keys that lead to it."""

    space: spaces.Space[Any]
    path: tuple[Any, ...] = ()

    def of(self, observation: Any) -> Any:
        for key in self.path:
            observation = observation[key]
        return observation


def observation_parts(space: spaces.Space[Any]) -> dict[str, Part]:
    """By name: the keys joined by dots, and the place in a Tuple as its number."""
    leaves = list(_leaves(Part(space)))
    names = [".".join(str(key) for key in leaf.path) or STATE for leaf in leaves]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise SpecError(f"two observations would be named {twice[0]!r}; rename one in the environment's space")
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
        raise SpecError(f"observations of {space} cannot be written as numbers: {problem}") from problem


def action_of(space: spaces.Space[Any]) -> Space:
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiDiscrete(tuple(space.nvec.ravel().tolist()))
    if isinstance(space, spaces.MultiBinary):
        return MultiDiscrete((2,) * math.prod(space.shape))
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        return Box(space.shape, "float32", _bound(space.low), _bound(space.high))
    whole = ", whose numbers are whole," if isinstance(space, spaces.Box) else ""
    raise SpecError(
        f"actions of {space}{whole} are not supported; use Discrete, MultiDiscrete, MultiBinary, or Box of floats"
    )


def given_actions(space: spaces.Space[Any], drawn: Array) -> list[Any]:
    """What the space itself contains, for each drawn action."""
    if isinstance(space, spaces.Discrete):
        return list((drawn + space.start if space.start else drawn).tolist())
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        first = space.start if isinstance(space, spaces.MultiDiscrete) else 0
        return list((drawn.reshape(len(drawn), *space.shape) + first).astype(space.dtype))
    assert isinstance(space, spaces.Box)  # as `action_of` made sure
    # By the environment's own bounds: those of the spec are float32 and may be rounded outwards.
    return list(np.clip(drawn.astype(space.dtype), space.low, space.high))


def flat_mask(mask: Any) -> Array:
    """Of several choices part after part; as a tuple of parts, which Gymnasium's spaces sample by, it will do too."""
    return np.concatenate([np.ravel(part) for part in mask]) if isinstance(mask, tuple) else np.asarray(mask)


def _bound(values: Array) -> tuple[float, ...]:
    flat = [float(v) for v in values.ravel()]
    return (flat[0],) if flat and all(v == flat[0] for v in flat) else tuple(flat)


def _rows(part: Part, observations: Any) -> Array:
    """One part of many observations, a row each."""
    values, box = part.of(observations), _box(part.space)
    if not isinstance(part.space, spaces.Box):
        values = [spaces.flatten(part.space, value) for value in values]
    return np.asarray(values, box.dtype).reshape(-1, *box.shape)


def _writer(part: Part) -> Callable[[Array, int, Any], None]:
    """Writes a Box as it is and anything else as numbers: each choice of a Discrete or MultiDiscrete one-hot."""

    def write(column: Array, row: int, observation: Any) -> None:
        value = part.of(observation)
        column[row] = value if is_box else spaces.flatten(part.space, value)

    is_box = isinstance(part.space, spaces.Box)
    return write
