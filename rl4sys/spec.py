"""Spec of a policy: the observation and action spaces on which client and learner must agree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rl4sys.errors import SpecError

Array: TypeAlias = npt.NDArray[Any]

Columns: TypeAlias = Mapping[str, Array]
"""Named arrays, usually columns with one row per step."""

State: TypeAlias = Mapping[str, Any]
"""Saved state of an object: a tree of arrays, numbers and strings from which the object is restored exactly."""

MASK = "mask"
"""Name of the observation with the action mask. The masks of MultiDiscrete dimensions are concatenated."""

STATE = "state"
"""Name of the observation if there is only one observation."""


DTYPES = ("float32", "float64", "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64")
"""Supported dtypes of a `Box`."""

_MAX_AXES = 8


class _DiscreteBase:
    """Base class of `Discrete` and `MultiDiscrete`."""

    dtype = "int64"

    def legal(self, action: Array) -> Array:
        """Return the action unchanged: discrete actions are always legal."""
        return action


@dataclass(frozen=True)
class Discrete(_DiscreteBase):
    """Discrete space: one of ``choices`` actions, numbered from 0."""

    choices: int

    def __post_init__(self) -> None:
        if self.choices < 1:
            raise SpecError(f"a discrete space needs at least 1 action, got {self.choices}")

    @property
    def parts(self) -> tuple[int, ...]:
        return (self.choices,)

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def size(self) -> int:
        return 1


@dataclass(frozen=True)
class MultiDiscrete(_DiscreteBase):
    """MultiDiscrete space: dimension i has ``choices[i]`` values, numbered from 0."""

    choices: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.choices or min(self.choices) < 1 or sum(self.choices) >= 2**63:
            raise SpecError(
                "a multi-discrete space needs at least 1 dimension, at least 1 value per dimension and fewer than "
                "2**63 values in total; "
                f"got {self.choices!s:.80}"
            )

    @property
    def parts(self) -> tuple[int, ...]:
        return self.choices

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.choices),)

    @property
    def size(self) -> int:
        return len(self.choices)


@dataclass(frozen=True)
class Box:
    """Space of arrays; ``low`` and ``high`` have one bound for all elements, or one per element (flattened)."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: tuple[float, ...] = (-math.inf,)
    high: tuple[float, ...] = (math.inf,)

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise SpecError(f"a box has dtype {self.dtype!r:.40}; expected one of {', '.join(DTYPES)}")
        # Check this first: the product of very many axes would take too long.
        if len(self.shape) > _MAX_AXES:
            raise SpecError(f"a box has {len(self.shape)} axes; the maximum is {_MAX_AXES}")
        if not all(0 <= length < 2**63 for length in self.shape):
            raise SpecError(f"a box has shape {self.shape}; every axis length must be at least 0 and below 2**63")
        for name, bound, never in (("low", self.low, math.inf), ("high", self.high, -math.inf)):
            if len(bound) not in (1, self.size):
                raise SpecError(f"{name} has {len(bound)} values; a box of shape {self.shape} takes 1 or {self.size}")
            if any(math.isnan(value) or value == never for value in bound):
                raise SpecError(f"{name} of a box holds NaN or {never}; omit {name} for an unbounded box")

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def bounds(self) -> tuple[Array, Array]:
        """Return the lower and upper bounds in the shape of the box."""
        low, high = (
            np.broadcast_to(np.asarray(b, np.float32), self.size).reshape(self.shape) for b in (self.low, self.high)
        )
        return low, high

    def legal(self, action: Array) -> Array:
        """Return the action clipped to the bounds of the box, as it is passed to the system."""
        low, high = self.bounds()
        return np.clip(action, low, high)


DiscreteSpace: TypeAlias = Discrete | MultiDiscrete
"""Discrete or MultiDiscrete space. ``parts`` has the number of values of each dimension; `Discrete` has one part."""

Space: TypeAlias = DiscreteSpace | Box


def encoded_size(space: Space) -> int:
    """Return the length of the action mask of a discrete space, or the number of elements of a box."""
    return space.size if isinstance(space, Box) else sum(space.parts)


def space_summary(space: Space) -> str:
    """Return the number of actions or the shape of a space as text, such as ``Discrete(4)``, without bounds."""
    if isinstance(space, Box):
        return str(space.shape)
    return f"Discrete({space.choices})" if isinstance(space, Discrete) else f"MultiDiscrete{space.choices}"


def mask_box(space: DiscreteSpace) -> Box:
    """Return the observation space of an action mask."""
    return Box((encoded_size(space),), "bool", (0.0,), (1.0,))


def in_range(space: DiscreteSpace, actions: Array) -> bool:
    """Return True if all actions (one per row) are within the ranges of the space."""
    chosen = actions.reshape(len(actions), -1)
    return bool(((chosen >= 0) & (chosen < space.parts)).all())


def is_allowed(space: DiscreteSpace, actions: Array, mask: Array) -> bool:
    """Return True if each row of the mask allows the action in the same row. All actions must be `in_range`."""
    chosen = actions.reshape(len(actions), -1) + _starts(space)
    return bool(np.take_along_axis(mask, chosen, axis=-1).all())


def allows_some_action(space: DiscreteSpace, mask: Array) -> bool:
    """Return True if every row of the mask allows at least one value in each action dimension."""
    return bool(np.logical_or.reduceat(mask, _starts(space), axis=-1).all())


def first_allowed(space: DiscreteSpace, mask: Array) -> Array:
    """Return the action with the first allowed value in each dimension. The mask is a single row."""
    firsts = [int(part.argmax()) for part in np.split(mask, _starts(space)[1:])]
    return np.array(firsts, np.int64).reshape(space.shape)


def check_observation(spec: Spec, observation: Columns) -> None:
    """Check the shapes of a batch of observations. Raises `SpecError` if they differ from the spec."""
    for name, box in spec.observation.items():
        if name in observation and observation[name].shape[1:] != box.shape:
            expected = str(("N", *box.shape)).replace("'", "")
            raise SpecError(f"the observation {name!r} has shape {observation[name].shape}; expected {expected}")


def _starts(space: DiscreteSpace) -> Array:
    """Return the offset of each action dimension in a mask."""
    return np.cumsum((0, *space.parts[:-1]))


@dataclass(frozen=True)
class Spec:
    """Names, shapes, dtypes and bounds of the observations and the action of a policy.

    Observations are sorted by name, because networks concatenate them and JSON libraries order keys differently.
    """

    observation: Mapping[str, Box]
    action: Space

    def __post_init__(self) -> None:
        object.__setattr__(self, "observation", dict(sorted(self.observation.items())))
        if not set(self.observation) - {MASK}:
            raise SpecError("the spec has no observation besides the mask")
        if MASK in self.observation:
            self._check_mask(self.observation[MASK])

    def _check_mask(self, mask: Box) -> None:
        if isinstance(self.action, Box):
            raise SpecError("an action mask needs a discrete action space, and this one is continuous")
        if (mask.dtype, mask.shape) != ("bool", (encoded_size(self.action),)):
            raise SpecError(
                f"the mask is {mask.dtype} of shape {mask.shape}; expected bool of shape ({encoded_size(self.action)},)"
            )

    @property
    def masked(self) -> bool:
        return MASK in self.observation

    def to_json(self) -> dict[str, Any]:
        return {
            "observation": {name: _space_to_json(space) for name, space in self.observation.items()},
            "action": _space_to_json(self.action),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Spec:
        try:
            observation = {name: _space_from_json(space) for name, space in value["observation"].items()}
            action = _space_from_json(value["action"])
        except KeyError as problem:
            raise SpecError(f"invalid spec: {problem} is missing in {value!r:.200}") from problem
        except (TypeError, AttributeError, ValueError, OverflowError) as problem:
            raise SpecError(f"invalid spec: {problem!s:.80} in {value!r:.200}") from problem
        boxes = {name: space for name, space in observation.items() if isinstance(space, Box)}
        if len(boxes) < len(observation):
            raise SpecError("observations must be boxes; encode discrete observations as one-hot boxes")
        return cls(boxes, action)


def _space_to_json(space: Space) -> dict[str, Any]:
    if isinstance(space, Discrete):
        return {"kind": "discrete", "choices": space.choices}
    if isinstance(space, MultiDiscrete):
        return {"kind": "multi_discrete", "choices": list(space.choices)}
    return {
        "kind": "box",
        "shape": list(space.shape),
        "dtype": space.dtype,
        "low": [_bound_to_json(b) for b in space.low],
        "high": [_bound_to_json(b) for b in space.high],
    }


def _space_from_json(value: Mapping[str, Any]) -> Space:
    if value["kind"] == "discrete":
        return Discrete(index(value["choices"]))
    if value["kind"] == "multi_discrete":
        return MultiDiscrete(tuple(index(choices) for choices in value["choices"]))
    low = tuple(-math.inf if b is None else float(b) for b in value["low"])
    high = tuple(math.inf if b is None else float(b) for b in value["high"])
    return Box(tuple(index(n) for n in value["shape"]), str(value["dtype"]), low, high)


def _bound_to_json(bound: float) -> float | None:
    # JSON has no infinity; null means unbounded.
    return float(bound) if math.isfinite(bound) else None
