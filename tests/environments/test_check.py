"""What is said about environments that are not as they should be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rl4sys.environments.base import Environment
from rl4sys.environments.check import check_environment
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.gym import make_environment
from rl4sys.errors import SpecError
from rl4sys.registry import register_environment
from rl4sys.trainer import check_before_training
from tests.conftest import Silent, small_config


class Line(gymnasium.Env[Any, Any]):
    """A walk on a line that has nothing wrong; each fault is a subclass."""

    def __init__(self) -> None:
        self.observation_space: spaces.Space[Any] = spaces.Box(-20, 20, (1,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Discrete(2)
        self.position, self.steps = 0.0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.position, self.steps = float(self.np_random.uniform(-1, 1)), 0
        return self.show(), self.info()

    def step(self, action: Any) -> Any:
        self.position += 1 if action else -1
        self.steps += 1
        return self.show(), self.reward(), self.steps >= 8, False, self.info()

    def show(self) -> Any:
        return np.array([self.position], np.float32)

    def reward(self) -> Any:
        return 1.0

    def info(self) -> dict[str, Any]:
        return {}


class Shapeless(Line):
    def show(self) -> Any:
        return np.float32(self.position)


class Outside(Line):
    def show(self) -> Any:
        return np.array([self.position + 50], np.float32)


class Fractions(Line):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-20, 20, (1,), np.int64)


class Infinite(Line):
    def show(self) -> Any:
        return np.array([np.nan if self.steps > 3 else 0.0], np.float32)


class Incomplete(Line):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)})

    def show(self) -> Any:
        return {"a": 1} if self.steps else {"a": 1, "b": 0}


class BeyondChoices(Line):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Discrete(3)

    def show(self) -> Any:
        return self.steps


class NoReward(Line):
    def reward(self) -> Any:
        return None


class NotANumber(Line):
    def reward(self) -> Any:
        return float("nan")


class Unseeded(Line):
    made = 0

    def __init__(self) -> None:
        super().__init__()
        Unseeded.made += 1

    def show(self) -> Any:
        return np.array([Unseeded.made], np.float32)

    def reset(self, **arguments: Any) -> Any:
        Unseeded.made += 1
        return super().reset(**arguments)


class Leaky(Line):
    """Remembers steps beyond the episode, so that only a new one starts the same."""

    ever = 0

    def step(self, action: Any) -> Any:
        self.ever += 1
        return super().step(action)

    def show(self) -> Any:
        return np.array([self.ever % 7], np.float32)


class Unbounded(Line):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Several(Line):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(0, 4, (1,), np.int64)


class WrongMask(Line):
    def info(self) -> dict[str, Any]:
        return {"action_mask": np.ones(3, bool)}


class NothingLegal(Line):
    def info(self) -> dict[str, Any]:
        return {"action_mask": np.zeros(2, bool)}


class MaskAtTimes(Line):
    def info(self) -> dict[str, Any]:
        return {"action_mask": np.ones(2, bool)} if self.steps < 3 else {}


class SameArray(Line):
    shown = np.zeros(1, np.float32)

    def show(self) -> Any:
        self.shown[0] = self.position
        return self.shown


class GoesOn(Line):
    def step(self, action: Any) -> Any:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, self.steps == 8, truncated, info


class NumberedEnd(Line):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, int(terminated), truncated, info


class Breaks(Line):
    def step(self, action: Any) -> Any:
        return [][self.steps]


class ManySwitches(Line):
    """Two switches and a dial, of which one switch is always stuck."""

    mask: Any = (np.array([0, 1], np.int8), np.array([1, 1], np.int8), np.array([1, 0, 1], np.int8))

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.MultiDiscrete([2, 2, 3], start=[0, 0, 4])

    def step(self, action: Any) -> Any:
        if not self.action_space.contains(action) or action[0] != 1 or action[2] == 5:
            raise ValueError(f"{action} is not legal")
        return super().step(action[1])

    def info(self) -> dict[str, Any]:
        return {"action_mask": self.mask}


class FlatMask(ManySwitches):
    mask = np.concatenate(ManySwitches.mask).astype(bool)


class WrongParts(ManySwitches):
    mask = np.ones(3, bool)

    def step(self, action: Any) -> Any:
        return Line.step(self, action[1])


class StuckPart(WrongParts):
    mask = np.array([False, False, True, True, True, True, True])


class Binary(Line):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.MultiBinary([2, 2])

    def step(self, action: Any) -> Any:
        return super().step(action[0, 1])


FAULTS: dict[type[Line], tuple[str, str]] = {
    Shapeless: ("error", r"observation state has the shape \(\), and its space \(1,\)"),
    Outside: ("warning", r"observation state leaves the bounds of its space, Box\(-20.*: widen them, or clip"),
    Fractions: ("error", "observation state is float32, and its space int64: that loses digits"),
    Infinite: ("error", "observation state holds NaN or infinity"),
    Incomplete: ("error", "observation b is in the space, but not in every observation"),
    BeyondChoices: ("error", r"observation state is 3, which is not in Discrete\(3\)"),
    NoReward: ("error", "the reward is NoneType, not a number: return a float"),
    NotANumber: ("error", "the reward is nan: look for a division by zero"),
    Unseeded: ("warning", r"reset\(seed\) does not decide the episode: .*environment\.remake=true"),
    Leaky: ("warning", r"reset\(seed\) does not decide the episode: .*environment\.remake=true"),
    Unbounded: ("hint", r"have no bounds: algorithms that squash actions .* \(SAC, TD3\) cannot be used"),
    Several: ("error", "whose numbers are whole, are not supported"),
    WrongMask: ("error", r"action_mask has the shape \(3,\); the actions are Discrete\(2\)"),
    WrongParts: ("error", r"action_mask has the shape \(3,\); the actions are MultiDiscrete\(\[2 2 3\]"),
    StuckPart: ("error", "action_mask allows nothing before the end of an episode"),
    NothingLegal: ("error", "action_mask allows nothing before the end of an episode"),
    MaskAtTimes: ("error", r"info\['action_mask'\] is there at times only"),
    SameArray: ("hint", r"step\(\) changes the array that it returned before.*Return a copy"),
    GoesOn: ("hint", r"step\(\) after the end of an episode goes on"),
    NumberedEnd: ("warning", "terminated is int, not a bool"),
    Breaks: ("error", r"after 0 steps it raised IndexError"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_is_found_and_nothing_else(fault: type[Line]) -> None:
    severity, text = FAULTS[fault]
    (found,) = check_environment(fault, after_end=True)
    assert found.severity == severity
    assert re.search(text, found.text), found.text


@pytest.mark.parametrize("right", [Line, ManySwitches, FlatMask, Binary])
def test_nothing_is_said_of_what_is_right(right: type[Line]) -> None:
    assert check_environment(right, after_end=True) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "CartPole-v1"},
        {"name": "Taxi-v4"},
        {"name": "Blackjack-v1"},
        {"name": "Hopper-v5"},
        {"wrapper": "dm_control", "name": "swimmer-swimmer6"},
        {"wrapper": "atari", "name": "Pong"},
        {"wrapper": "goal", "name": "PointReach"},
        {"wrapper": "multigoal"},
    ],
    ids=str,
)
def test_nothing_is_said_of_known_environments(settings: dict[str, Any]) -> None:
    config = EnvironmentConfig(**settings)
    assert check_environment(lambda: make_environment(config), after_end=True) == []


def test_making_anew_mends_what_leaks_but_not_what_has_no_seed() -> None:
    assert check_environment(Leaky, remake=True) == []
    (found,) = check_environment(Unseeded, remake=True)
    assert "even of an environment made anew" in found.text


def registered(name: str, make: Callable[[], Environment]) -> str:
    def maker(config: EnvironmentConfig) -> Environment:
        return make()

    maker.__qualname__ = name
    register_environment(name)(maker)
    return name


def test_a_run_does_not_start_in_an_environment_that_spoils_it() -> None:
    config = small_config("ppo", f"environment.name={registered('check_no_reward', NoReward)}")
    with pytest.raises(SpecError, match="nothing can be learnt in check_no_reward as it is:\nthe reward is NoneType"):
        check_before_training(config, Silent())


def test_a_run_notes_what_it_will_cost() -> None:
    config = small_config("ppo", f"environment.name={registered('check_leaky', Leaky)}")
    silent = Silent()
    check_before_training(config, silent)
    assert len(silent.notes) == 1
    assert silent.notes[0].startswith("check_leaky: reset(seed) does not decide the episode")
