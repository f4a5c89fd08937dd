"""What goes into a policy and what comes out of it: all that a client and its learner must agree on."""

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
"""Named arrays that share their leading axis."""

State: TypeAlias = Mapping[str, Any]
"""A tree of plain arrays, numbers and strings: everything needed to go on exactly."""

MASK = "mask"
"""The observation that says which choices are legal now, part after part; recorded like any other observation."""

STATE = "state"
"""The observation of a system that has only one."""


DTYPES = ("float32", "float64", "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64")
"""What observations may be made of."""

_MOST_AXES = 8


class _Chosen:
    """What one choice and several at once have in common."""

    dtype = "int64"

    def legal(self, action: Array) -> Array:
        """What the system is given when the policy drew ``action``."""
        return action


@dataclass(frozen=True)
class Discrete(_Chosen):
    """One of ``choices`` alternatives, numbered from 0."""

    choices: int

    def __post_init__(self) -> None:
        if self.choices < 1:
            raise SpecError(f"a discrete space needs at least 1 choice, got {self.choices}")

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
class MultiDiscrete(_Chosen):
    """Several choices made at once: of part i one of ``choices[i]`` alternatives, numbered from 0."""

    choices: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.choices or min(self.choices) < 1 or sum(self.choices) >= 2**63:
            raise SpecError(
                "a multi-discrete space needs at least 1 part, each at least 1 choice, and fewer than 2**63 in all; "
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
    """Numbers in an array; ``low`` and ``high`` hold one bound for all elements or one each, flat."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: tuple[float, ...] = (-math.inf,)
    high: tuple[float, ...] = (math.inf,)

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise SpecError(f"a box of type {self.dtype!r:.40}; it should be one of {', '.join(DTYPES)}")
        # Before anything is multiplied: the product of very many axes would take for ever.
        if len(self.shape) > _MOST_AXES:
            raise SpecError(f"a box of {len(self.shape)} axes; it can have {_MOST_AXES}")
        if not all(0 <= length < 2**63 for length in self.shape):
            raise SpecError(f"a box of shape {self.shape}; no axis can be shorter than 0, or 2**63 long")
        for name, bound, never in (("low", self.low, math.inf), ("high", self.high, -math.inf)):
            if len(bound) not in (1, self.size):
                raise SpecError(f"{name} has {len(bound)} values; a box of shape {self.shape} takes 1 or {self.size}")
            if any(math.isnan(value) or value == never for value in bound):
                raise SpecError(
                    f"{name} of a box holds NaN or {never}, which bounds nothing; leave it out for no bound"
                )

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper bound of every element, in the box's shape."""
        low, high = (
            np.broadcast_to(np.asarray(b, np.float32), self.size).reshape(self.shape) for b in (self.low, self.high)
        )
        return low, high

    def legal(self, action: Array) -> Array:
        """What the system is given when the policy drew ``action``: the nearest point of the box."""
        low, high = self.bounds()
        return np.clip(action, low, high)


Choices: TypeAlias = Discrete | MultiDiscrete
"""Actions made of numbered alternatives, in ``parts`` with so many each; one choice is one part."""

Space: TypeAlias = Choices | Box


def numbers_of(space: Space) -> int:
    """Numbers that describe one action: one for each choice of all parts, which is a mask's length, or each element."""
    return space.size if isinstance(space, Box) else sum(space.parts)


def outline(space: Space) -> str:
    """Its sizes, which are all that a policy depends on: bounds may differ."""
    return str(space.shape) if isinstance(space, Box) else f"{space.choices} choices"


def mask_box(space: Choices) -> Box:
    """The observation that a mask of these choices is."""
    return Box((numbers_of(space),), "bool", (0.0,), (1.0,))


def in_range(space: Choices, actions: Array) -> bool:
    """Whether every part of all actions, a row each, is one of its choices."""
    chosen = actions.reshape(len(actions), -1)
    return bool(((chosen >= 0) & (chosen < space.parts)).all())


def permitted(space: Choices, actions: Array, mask: Array) -> bool:
    """Whether the mask's rows allow every part of all actions, which are in range."""
    chosen = actions.reshape(len(actions), -1) + _starts(space)
    return bool(np.take_along_axis(mask, chosen, axis=-1).all())


def leaves_choice(space: Choices, mask: Array) -> bool:
    """Whether every row of the mask allows something of each part."""
    return bool(np.logical_or.reduceat(mask, _starts(space), axis=-1).all())


def first_permitted(space: Choices, mask: Array) -> Array:
    """The first legal choice of each part by one row of a mask, in the action's shape."""
    firsts = [int(part.argmax()) for part in np.split(mask, _starts(space)[1:])]
    return np.array(firsts, np.int64).reshape(space.shape)


def _starts(space: Choices) -> Array:
    """Where each part begins in a mask."""
    return np.cumsum((0, *space.parts[:-1]))


@dataclass(frozen=True)
class Spec:
    """Names, shapes, types and bounds of what a policy sees and does.

    Observations are kept sorted by name: they reach a network side by side in that order, which must not
    depend on how a JSON library orders the members of an object.
    """

    observation: Mapping[str, Box]
    action: Space

    def __post_init__(self) -> None:
        object.__setattr__(self, "observation", dict(sorted(self.observation.items())))
        if not set(self.observation) - {MASK}:
            raise SpecError("a policy needs something to see: the spec has no observation but the mask")
        if MASK in self.observation:
            self._check_mask(self.observation[MASK])

    def _check_mask(self, mask: Box) -> None:
        if isinstance(self.action, Box):
            raise SpecError("an action mask needs a discrete action space, and this one is continuous")
        if (mask.dtype, mask.shape) != ("bool", (numbers_of(self.action),)):
            raise SpecError(
                f"the mask is {mask.dtype} of shape {mask.shape}; it should be bool of ({numbers_of(self.action)},)"
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
            raise SpecError(f"not the description of a spec: {problem} is missing in {value!r:.200}") from problem
        except (TypeError, AttributeError, ValueError, OverflowError) as problem:
            raise SpecError(f"not the description of a spec: {problem!s:.80} in {value!r:.200}") from problem
        boxes = {name: space for name, space in observation.items() if isinstance(space, Box)}
        if len(boxes) < len(observation):
            raise SpecError("observations are boxes; encode discrete ones (one-hot) before they reach a policy")
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
    # JSON has no infinity; an absent bound says the same.
    return float(bound) if math.isfinite(bound) else None
