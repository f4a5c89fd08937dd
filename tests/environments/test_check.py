"""Findings of the environment check."""

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
from rl4sys.environments.factory import make_environment
from rl4sys.errors import SpecError
from rl4sys.registry import register_environment
from rl4sys.training.setup import check_before_training
from tests.conftest import SilentObserver, small_config


class Line(gymnasium.Env[Any, Any]):
    """Environment without faults: a random walk on a line. Each subclass adds one fault."""

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


class WrongShape(Line):
    def show(self) -> Any:
        return np.float32(self.position)


class OutOfBounds(Line):
    def show(self) -> Any:
        return np.array([self.position + 50], np.float32)


class FloatsInIntegerSpace(Line):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-20, 20, (1,), np.int64)


class NanObservation(Line):
    def show(self) -> Any:
        return np.array([np.nan if self.steps > 3 else 0.0], np.float32)


class MissingPart(Line):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)})

    def show(self) -> Any:
        return {"a": 1} if self.steps else {"a": 1, "b": 0}


class OutOfRange(Line):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Discrete(3)

    def show(self) -> Any:
        return self.steps


class NoReward(Line):
    def reward(self) -> Any:
        return None


class NanReward(Line):
    def reward(self) -> Any:
        return float("nan")


class Unseeded(Line):
    made = 0

    def __init__(self) -> None:
        super().__init__()
        Unseeded.made += 1

    def show(self) -> Any:
        # Other tests in this process count too, and observations must stay within their bounds.
        return np.array([Unseeded.made % 20], np.float32)

    def reset(self, **arguments: Any) -> Any:
        Unseeded.made += 1
        return super().reset(**arguments)


class LeakingState(Line):
    """Environment that keeps state across episodes, so only a new environment starts in the same state."""

    ever = 0

    def step(self, action: Any) -> Any:
        self.ever += 1
        return super().step(action)

    def show(self) -> Any:
        return np.array([self.ever % 7], np.float32)


class UnboundedActions(Line):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class IntegerActions(Line):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(0, 4, (1,), np.int64)


class WrongMaskShape(Line):
    def info(self) -> dict[str, Any]:
        return {"action_mask": np.ones(3, bool)}


class EmptyMask(Line):
    def info(self) -> dict[str, Any]:
        return {"action_mask": np.zeros(2, bool)}


class MaskSometimesMissing(Line):
    def info(self) -> dict[str, Any]:
        return {"action_mask": np.ones(2, bool)} if self.steps < 3 else {}


class ReusedArray(Line):
    shown = np.zeros(1, np.float32)

    def show(self) -> Any:
        self.shown[0] = self.position
        return self.shown


class ContinuesAfterEnd(Line):
    def step(self, action: Any) -> Any:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, self.steps == 8, truncated, info


class IntegerEnd(Line):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, int(terminated), truncated, info


class Raises(Line):
    def step(self, action: Any) -> Any:
        return [][self.steps]


class MaskedParts(Line):
    """Environment with MultiDiscrete actions in which some values are always masked."""

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


class FlatMask(MaskedParts):
    mask = np.concatenate(MaskedParts.mask).astype(bool)


class WrongPartsMask(MaskedParts):
    mask = np.ones(3, bool)

    def step(self, action: Any) -> Any:
        return Line.step(self, action[1])


class EmptyPartMask(WrongPartsMask):
    mask = np.array([False, False, True, True, True, True, True])


class BinaryActions(Line):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.MultiBinary([2, 2])

    def step(self, action: Any) -> Any:
        return super().step(action[0, 1])


FAULTS: dict[type[Line], tuple[str, str]] = {
    WrongShape: ("error", r"observation 'state' has shape \(\), but its space has \(1,\)"),
    OutOfBounds: (
        "warning",
        r"observation 'state' is outside the bounds of its space Box\(-20.*: widen the bounds, or clip",
    ),
    FloatsInIntegerSpace: (
        "error",
        "observation 'state' has dtype float32, but its space has dtype int64; the conversion loses precision",
    ),
    NanObservation: ("error", "observation 'state' contains NaN or infinity"),
    MissingPart: ("error", "observation 'b' is in the observation space, but missing from some observations"),
    OutOfRange: ("error", r"observation 'state' is 3, which is not in its space Discrete\(3\): correct the value"),
    NoReward: ("error", "the reward is NoneType, not a number: return a float"),
    NanReward: ("error", "the reward is nan: look for a division by zero"),
    Unseeded: ("warning", r"reset\(seed\) does not determine the episode: .*environment\.remake=true"),
    LeakingState: ("warning", r"reset\(seed\) does not determine the episode: .*environment\.remake=true"),
    UnboundedActions: ("hint", r"have no bounds: algorithms that squash actions .* \(SAC, TD3\) cannot be used"),
    IntegerActions: ("error", r"\(integers\) are not supported"),
    WrongMaskShape: ("error", r"action_mask has shape \(3,\), which does not fit the action space Discrete\(2\)"),
    WrongPartsMask: (
        "error",
        r"action_mask has shape \(3,\), which does not fit the action space MultiDiscrete\(\[2 2 3\]",
    ),
    EmptyPartMask: ("error", "action_mask allows no action before the end of an episode"),
    EmptyMask: ("error", "action_mask allows no action before the end of an episode"),
    MaskSometimesMissing: ("error", r"info\['action_mask'\] is missing from some steps"),
    ReusedArray: ("hint", r"step\(\) modifies the array it returned before.*Return a copy"),
    ContinuesAfterEnd: ("hint", r"step\(\) after the end of an episode continues instead of raising"),
    IntegerEnd: ("warning", "terminated is int, not a bool"),
    Raises: ("error", r"the environment raised IndexError\(.*\) after 0 steps"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_environment_fault_gives_exactly_one_finding(fault: type[Line]) -> None:
    severity, text = FAULTS[fault]
    (found,) = check_environment(fault, after_end=True)
    assert found.severity == severity
    assert re.search(text, found.text), found.text


@pytest.mark.parametrize("correct", [Line, MaskedParts, FlatMask, BinaryActions])
def test_correct_environments_have_no_findings(correct: type[Line]) -> None:
    assert check_environment(correct, after_end=True) == []


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
def test_known_environments_have_no_findings(settings: dict[str, Any]) -> None:
    config = EnvironmentConfig(**settings)
    assert check_environment(lambda: make_environment(config), after_end=True) == []


def test_remake_fixes_leaking_state_but_not_missing_seeding() -> None:
    assert check_environment(LeakingState, remake=True) == []
    (found,) = check_environment(Unseeded, remake=True)
    assert "even of a newly created environment" in found.text


def registered(name: str, make: Callable[[], Environment]) -> str:
    def maker(config: EnvironmentConfig) -> Environment:
        return make()

    maker.__qualname__ = name
    register_environment(name)(maker)
    return name


def test_faulty_environment_is_rejected_before_training() -> None:
    config = small_config("ppo", f"environment.name={registered('check_no_reward', NoReward)}")
    with pytest.raises(
        SpecError, match="the environment 'check_no_reward' cannot be used for training:\nthe reward is NoneType"
    ):
        check_before_training(config, SilentObserver())


def test_environment_warnings_are_noted_before_training() -> None:
    config = small_config("ppo", f"environment.name={registered('check_leaky', LeakingState)}")
    silent = SilentObserver()
    check_before_training(config, silent)
    assert len(silent.notes) == 1
    assert silent.notes[0].startswith("check_leaky: reset(seed) does not determine the episode")
