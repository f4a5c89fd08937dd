"""Checks that detect common mistakes in an environment before training."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from rl4sys.environments.base import Environment
from rl4sys.environments.encoding import (
    INFO_MASK,
    Encoding,
    Part,
    action_space_of,
    flatten_mask,
    observation_parts,
    to_space_actions,
)
from rl4sys.errors import SpecError
from rl4sys.spec import Array, Box, DiscreteSpace, allows_some_action, encoded_size

_FIRST_SEED = 2018


@dataclass(frozen=True)
class Finding:
    """Problem found by an environment check, described for the author of the environment."""

    severity: Literal["error", "warning", "hint"]
    """Severity: error (training fails or is wrong), warning (training is limited) or hint (relevant to some users)."""
    text: str
    rule: str = ""
    """Rule that the environment breaks; one of `RULES`."""


_RUNS = "legal actions can be taken without an exception"
_SPACES = "the spaces are supported"
_OBSERVATIONS = "observations are elements of the observation space"
_REWARDS = "rewards are finite numbers"
_ENDS = "terminated and truncated are booleans"
_MASKS = "action masks fit the action space"
_COPIES = "step() returns new arrays"
_ENDED = "episodes end when terminated or truncated is true"
_SEED = "reset(seed) determines the episode"
RULES = (_RUNS, _SPACES, _OBSERVATIONS, _REWARDS, _ENDS, _MASKS, _COPIES, _ENDED, _SEED)
"""Rules that `check_environment` checks."""


@dataclass
class _Walk:
    """Observations, action masks, rewards and end flags recorded during random steps in an environment."""

    observations: list[Any] = field(default_factory=list)
    masks: list[Array | None] = field(default_factory=list)
    rewards: list[Any] = field(default_factory=list)
    ends: list[tuple[Any, Any]] = field(default_factory=list)
    changes_observations: bool = False
    continues_after_end: bool = False
    error: str = ""
    """Message with the exception of the environment and the number of steps before it; empty without an exception."""

    def record(self, observation: Any, info: Mapping[str, Any], ends: tuple[Any, Any] = (False, False)) -> None:
        self.observations.append(deepcopy(observation))
        self.masks.append(deepcopy(_mask(observation, info)))
        self.ends.append(ends)

    def equals(self, other: _Walk) -> bool:
        pairs = ((self.observations, other.observations), (self.rewards, other.rewards), (self.ends, other.ends))
        return all(_equal(*pair) for pair in pairs)


def check_environment(
    make: Callable[[], Environment], *, steps: int = 20, remake: bool = False, after_end: bool = False
) -> list[Finding]:
    """Run ``steps`` random steps twice from the same seed and return the problems found.

    ``remake`` creates a new environment for the second pass; ``after_end`` adds a step after the end of an episode.
    """
    environment = make()
    try:
        first = _walk(environment, steps, after_end)
        found = [*_check_spaces(environment, first), *_check_walk(environment, first)]
        if remake:
            environment.close()
            environment = make()
        second = _walk(environment, steps, after_end)
    finally:
        environment.close()
    if not first.error and not first.equals(second):
        found.append(Finding("warning", _REMADE_DIFFERS if remake else _DIFFERS, _SEED))
    return list(dict.fromkeys(found))


_DIFFERS = (
    "reset(seed) does not determine the episode: the same seed and actions gave another result the second time, so "
    "runs are not repeatable and cannot be resumed. Draw all random numbers from self.np_random after "
    "super().reset(seed=seed) and clear all state of the last episode; or set environment.remake=true, which creates a "
    "new environment for every episode"
)
_REMADE_DIFFERS = (
    "reset(seed) does not determine the episode, even of a newly created environment: the same seed and actions gave "
    "another result, so runs are not repeatable and cannot be resumed. Draw all random numbers from self.np_random"
)


def _walk(environment: Environment, steps: int, after_end: bool) -> _Walk:
    walk = _Walk()
    environment.action_space.seed(_FIRST_SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _take_steps(environment, steps, walk, after_end)
        except Exception as problem:
            # Third-party environments may raise any exception.
            walk.error = f"the environment raised {problem!r} after {len(walk.rewards)} steps"
    return walk


def _take_steps(environment: Environment, steps: int, walk: _Walk, after_end: bool) -> None:
    observation, info = environment.reset(seed=_FIRST_SEED)
    walk.record(observation, info)
    for step in range(steps):
        action = _legal_action(environment.action_space, walk.masks[-1])
        previous = observation
        observation, reward, terminated, truncated, info = environment.step(action)
        walk.changes_observations |= not _equal(previous, walk.observations[-1])
        walk.record(observation, info, (terminated, truncated))
        walk.rewards.append(reward)
        if terminated or truncated:
            walk.continues_after_end |= after_end and _continues(environment, action)
            observation, info = environment.reset(seed=_FIRST_SEED + step)
            walk.record(observation, info)


def _legal_action(space: spaces.Space[Any], mask: Array | None) -> Any:
    discrete = _discrete_space(space)
    if discrete is None or mask is None or not _allows_any_action(discrete, mask):
        return space.sample()
    ends = np.cumsum(discrete.parts)[:-1]
    chosen = [space.np_random.choice(np.flatnonzero(part)) for part in np.split(mask, ends)]
    return to_space_actions(space, np.array(chosen).reshape(1, *discrete.shape))[0]


def _discrete_space(space: spaces.Space[Any]) -> DiscreteSpace | None:
    try:
        action = action_space_of(space)
    except SpecError:
        return None
    return None if isinstance(action, Box) else action


def _allows_any_action(discrete: DiscreteSpace, mask: Array) -> bool:
    return mask.shape == (encoded_size(discrete),) and allows_some_action(discrete, mask.astype(np.bool_))


def _continues(environment: Environment, action: Any) -> bool:
    try:
        _, _, terminated, truncated, _ = environment.step(action)
    except Exception:
        # An environment should raise if it is stepped after the end of an episode.
        return False
    return not (terminated or truncated)


def _mask(observation: Any, info: Mapping[str, Any]) -> Array | None:
    given = info.get(INFO_MASK)
    if given is None and isinstance(observation, Mapping):
        given = observation.get(INFO_MASK)
    return None if given is None else flatten_mask(given)


def _check_spaces(environment: Environment, walk: _Walk) -> Iterator[Finding]:
    if walk.error:
        yield Finding("error", walk.error, _RUNS)
        return
    try:
        Encoding(environment)
    except SpecError as problem:
        yield Finding("error", str(problem), _SPACES)
    action = environment.action_space
    if isinstance(action, spaces.Box) and not action.is_bounded():
        yield Finding(
            "hint",
            f"actions of {action} have no bounds: algorithms that squash actions into their bounds (SAC, TD3) cannot "
            "be used, and the actions of PPO may become very large. Declare a sensible range as low and high",
            _SPACES,
        )


def _check_walk(environment: Environment, walk: _Walk) -> Iterator[Finding]:
    for name, part in observation_parts(environment.observation_space).items():
        yield from _of(_OBSERVATIONS, _first(_check_part(name, part, seen) for seen in walk.observations))
    yield from _of(_REWARDS, _first(map(_check_reward, walk.rewards)))
    yield from _of(_ENDS, _first(starmap(_check_end, walk.ends)))
    yield from _of(_MASKS, _check_masks(environment.action_space, walk))
    if walk.changes_observations:
        yield Finding(
            "hint",
            "step() modifies the array it returned before, so all stored observations become equal to the last one. "
            "Return a copy",
            _COPIES,
        )
    if walk.continues_after_end:
        yield Finding(
            "hint",
            "step() after the end of an episode continues instead of raising. rl4sys calls reset() after each episode; "
            "if step() also resets, the last observation of an episode is lost: leave resetting to the caller",
            _ENDED,
        )


def _of(rule: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    return (replace(finding, rule=rule) for finding in findings)


def _first(findings: Iterable[Iterator[Finding]]) -> Iterator[Finding]:
    """Return the findings of the first checked value that has any, because later values repeat the same findings."""
    return next((iter(found) for found in map(list, findings) if found), iter(()))


def _check_part(name: str, part: Part, observation: Any) -> Iterator[Finding]:
    try:
        value = part.of(observation)
    except (KeyError, IndexError, TypeError):
        yield Finding(
            "error",
            f"observation '{name}' is in the observation space, but missing from some observations: always include it",
        )
        return
    if isinstance(part.space, spaces.Box):
        yield from _check_box(name, part.space, np.asarray(value))
    elif not part.space.contains(value):
        yield Finding(
            "error",
            f"observation '{name}' is {value!r:.60}, which is not in its space {part.space}: correct the "
            "value or the space",
        )


def _check_box(name: str, space: spaces.Box, value: Array) -> Iterator[Finding]:
    if value.shape != space.shape:
        yield Finding("error", f"observation '{name}' has shape {value.shape}, but its space has {space.shape}")
    elif value.dtype.kind not in "biuf":
        yield Finding("error", f"observation '{name}' has dtype {value.dtype}, which is not numeric")
    elif not np.isfinite(value).all():
        yield Finding("error", f"observation '{name}' contains NaN or infinity: look for a division by zero")
    elif not np.can_cast(value.dtype, space.dtype, "same_kind"):
        yield Finding(
            "error",
            f"observation '{name}' has dtype {value.dtype}, but its space has dtype {space.dtype}; the "
            "conversion loses precision: make the dtypes equal",
        )
    elif ((value < space.low) | (value > space.high)).any():
        yield Finding(
            "warning", f"observation '{name}' is outside the bounds of its space {space}: widen the bounds, or clip it"
        )


def _check_reward(reward: Any) -> Iterator[Finding]:
    try:
        number = float(reward)
    except (TypeError, ValueError):
        yield Finding("error", f"the reward is {type(reward).__name__}, not a number: return a float")
        return
    if not math.isfinite(number):
        yield Finding("error", f"the reward is {number}: look for a division by zero or the logarithm of 0")


def _check_end(terminated: Any, truncated: Any) -> Iterator[Finding]:
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            yield Finding("warning", f"{name} is {type(flag).__name__}, not a bool: return True or False")


def _check_masks(actions: spaces.Space[Any], walk: _Walk) -> Iterator[Finding]:
    missing = sum(mask is None for mask in walk.masks)
    if 0 < missing < len(walk.masks):
        yield Finding(
            "error", "info['action_mask'] is missing from some steps: return it from every reset and every step"
        )
    discrete = _discrete_space(actions)
    for mask, end in zip(walk.masks, walk.ends, strict=True):
        if mask is None:
            continue
        if discrete is None or mask.shape != (encoded_size(discrete),):
            yield Finding("error", f"action_mask has shape {mask.shape}, which does not fit the action space {actions}")
        elif not _allows_any_action(discrete, mask) and not any(end):
            yield Finding("error", "action_mask allows no action before the end of an episode: allow at least one")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and one.keys() == other.keys() and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_equal(*pair) for pair in zip(one, other, strict=True))
    one, other = np.asarray(one), np.asarray(other)
    return np.array_equal(one, other, equal_nan=one.dtype.kind == other.dtype.kind == "f")
