"""Tells what is wrong with an environment, in words, before a policy learns from it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from rl4sys.environments.base import Environment
from rl4sys.environments.encoding import (
    INFO_MASK,
    Encoding,
    Part,
    action_of,
    flat_mask,
    given_actions,
    observation_parts,
)
from rl4sys.errors import SpecError
from rl4sys.spec import Array, Box, Choices, leaves_choice, numbers_of

_SEED = 2018


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, said so that the environment's author can mend it."""

    severity: Literal["error", "warning", "hint"]
    """An error spoils what is learnt, a warning costs something, a hint matters to some."""
    text: str


@dataclass
class _Walk:
    """What an environment showed over some random steps, and how it behaved."""

    observations: list[Any] = field(default_factory=list)
    masks: list[Array | None] = field(default_factory=list)
    rewards: list[Any] = field(default_factory=list)
    ends: list[tuple[Any, Any]] = field(default_factory=list)
    changes_observations: bool = False
    goes_on_after_the_end: bool = False
    broke: str = ""
    """Where and how it raised an exception."""

    def see(self, observation: Any, info: Mapping[str, Any], ends: tuple[Any, Any] = (False, False)) -> None:
        self.observations.append(deepcopy(observation))
        self.masks.append(deepcopy(_mask(observation, info)))
        self.ends.append(ends)

    def led_where(self, other: _Walk) -> bool:
        pairs = ((self.observations, other.observations), (self.rewards, other.rewards), (self.ends, other.ends))
        return all(_equal(*pair) for pair in pairs)


def check_environment(
    make: Callable[[], Environment], *, steps: int = 20, remake: bool = False, after_end: bool = False
) -> list[Finding]:
    """What is found in ``steps`` random steps, taken twice from the same seed in an environment made for that.

    ``remake`` makes it anew the second time; ``after_end`` also tries a step where an episode has ended.
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
    if not first.broke and not first.led_where(second):
        found.append(Finding("warning", _REMADE_DIFFERS if remake else _DIFFERS))
    return list(dict.fromkeys(found))


_DIFFERS = (
    "reset(seed) does not decide the episode: the same seed and actions led elsewhere the second time, so runs are "
    "not repeatable and cannot be resumed. Draw all chance from self.np_random after super().reset(seed=seed) and let "
    "nothing of the last episode remain; or set environment.remake=true, which makes it anew for every episode"
)
_REMADE_DIFFERS = (
    "reset(seed) does not decide the episode, even of an environment made anew: the same seed and actions led "
    "elsewhere, so runs are not repeatable and cannot be resumed. Draw all chance from self.np_random"
)


def _walk(environment: Environment, steps: int, after_end: bool) -> _Walk:
    walk = _Walk()
    environment.action_space.seed(_SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _take_steps(environment, steps, walk, after_end)
        except Exception as problem:
            # Environments are other people's code, and may raise anything.
            walk.broke = f"after {len(walk.rewards)} steps it raised {problem!r}"
    return walk


def _take_steps(environment: Environment, steps: int, walk: _Walk, after_end: bool) -> None:
    observation, info = environment.reset(seed=_SEED)
    walk.see(observation, info)
    for step in range(steps):
        action = _legal_action(environment.action_space, walk.masks[-1])
        held = observation
        observation, reward, terminated, truncated, info = environment.step(action)
        walk.changes_observations |= not _equal(held, walk.observations[-1])
        walk.see(observation, info, (terminated, truncated))
        walk.rewards.append(reward)
        if terminated or truncated:
            walk.goes_on_after_the_end |= after_end and _goes_on(environment, action)
            observation, info = environment.reset(seed=_SEED + step)
            walk.see(observation, info)


def _legal_action(space: spaces.Space[Any], mask: Array | None) -> Any:
    choices = _choices(space)
    if choices is None or mask is None or not _leaves_choice(choices, mask):
        return space.sample()
    ends = np.cumsum(choices.parts)[:-1]
    chosen = [space.np_random.choice(np.flatnonzero(part)) for part in np.split(mask, ends)]
    return given_actions(space, np.array(chosen).reshape(1, *choices.shape))[0]


def _choices(space: spaces.Space[Any]) -> Choices | None:
    try:
        action = action_of(space)
    except SpecError:
        return None
    return None if isinstance(action, Box) else action


def _leaves_choice(choices: Choices, mask: Array) -> bool:
    return mask.shape == (numbers_of(choices),) and leaves_choice(choices, mask.astype(np.bool_))


def _goes_on(environment: Environment, action: Any) -> bool:
    try:
        _, _, terminated, truncated, _ = environment.step(action)
    except Exception:
        # To refuse is the best that it can do.
        return False
    return not (terminated or truncated)


def _mask(observation: Any, info: Mapping[str, Any]) -> Array | None:
    given = info.get(INFO_MASK)
    if given is None and isinstance(observation, Mapping):
        given = observation.get(INFO_MASK)
    return None if given is None else flat_mask(given)


def _check_spaces(environment: Environment, walk: _Walk) -> Iterator[Finding]:
    if walk.broke:
        yield Finding("error", walk.broke)
        return
    try:
        Encoding(environment)
    except SpecError as problem:
        yield Finding("error", str(problem))
    action = environment.action_space
    if isinstance(action, spaces.Box) and not action.is_bounded():
        yield Finding(
            "hint",
            f"actions of {action} have no bounds: algorithms that squash actions into their bounds (SAC, TD3) cannot "
            "be used, and PPO may drift to very large ones. Declare the range that makes sense as low and high",
        )


def _check_walk(environment: Environment, walk: _Walk) -> Iterator[Finding]:
    for name, part in observation_parts(environment.observation_space).items():
        yield from _first(_check_part(name, part, observation) for observation in walk.observations)
    yield from _first(map(_check_reward, walk.rewards))
    yield from _first(starmap(_check_end, walk.ends))
    yield from _check_masks(environment.action_space, walk)
    if walk.changes_observations:
        yield Finding(
            "hint",
            "step() changes the array that it returned before: whoever keeps observations finds all of them the same. "
            "Return a copy",
        )
    if walk.goes_on_after_the_end:
        yield Finding(
            "hint",
            "step() after the end of an episode goes on as if it had not ended. rl4sys resets there; but if the "
            "environment resets itself, the last observation of each episode is lost: leave resetting to the caller",
        )


def _first(findings: Iterable[Iterator[Finding]]) -> Iterator[Finding]:
    """What is wrong where something first is: the same again with other numbers tells nothing more."""
    return next((iter(found) for found in map(list, findings) if found), iter(()))


def _check_part(name: str, part: Part, observation: Any) -> Iterator[Finding]:
    try:
        value = part.of(observation)
    except (KeyError, IndexError, TypeError):
        yield Finding("error", f"observation {name} is in the space, but not in every observation: give it always")
        return
    if isinstance(part.space, spaces.Box):
        yield from _check_box(name, part.space, np.asarray(value))
    elif not part.space.contains(value):
        yield Finding(
            "error", f"observation {name} is {value!r:.60}, which is not in {part.space}: correct one of them"
        )


def _check_box(name: str, space: spaces.Box, value: Array) -> Iterator[Finding]:
    if value.shape != space.shape:
        yield Finding("error", f"observation {name} has the shape {value.shape}, and its space {space.shape}")
    elif value.dtype.kind not in "biuf":
        yield Finding("error", f"observation {name} holds {value.dtype}, not numbers")
    elif not np.isfinite(value).all():
        yield Finding("error", f"observation {name} holds NaN or infinity: look for a division by zero")
    elif not np.can_cast(value.dtype, space.dtype, "same_kind"):
        yield Finding("error", f"observation {name} is {value.dtype}, and its space {space.dtype}: that loses digits")
    elif ((value < space.low) | (value > space.high)).any():
        yield Finding("warning", f"observation {name} leaves the bounds of its space, {space}: widen them, or clip")


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
        yield Finding("error", "info['action_mask'] is there at times only: give it with every reset and every step")
    choices = _choices(actions)
    for mask, end in zip(walk.masks, walk.ends, strict=True):
        if mask is None:
            continue
        if choices is None or mask.shape != (numbers_of(choices),):
            yield Finding("error", f"action_mask has the shape {mask.shape}; the actions are {actions}")
        elif not _leaves_choice(choices, mask) and not any(end):
            yield Finding("error", "action_mask allows nothing before the end of an episode: allow at least one action")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and one.keys() == other.keys() and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_equal(*pair) for pair in zip(one, other, strict=True))
    one, other = np.asarray(one), np.asarray(other)
    return np.array_equal(one, other, equal_nan=one.dtype.kind == other.dtype.kind == "f")
