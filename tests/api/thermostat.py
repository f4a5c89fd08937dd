"""Environments in an importable module, like those of a user."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Thermostat(gymnasium.Env[Any, Any]):
    """Room that is heated to a target temperature."""

    observation_space = gymnasium.spaces.Box(-50.0, 50.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, target: float = 20.0) -> None:
        self.target = target

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.room, self.time = float(self.np_random.uniform(5.0, 30.0)), 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.room += (2.0 if action else 0.0) - 0.1 * (self.room - 5.0)
        self.time += 1
        return self._observation(), -abs(self.room - self.target), False, self.time == 50, {}

    def _observation(self) -> Any:
        return np.array([self.room, self.target], np.float32)


class PlainThermostat(Thermostat):
    """Thermostat whose constructor has no parameters."""

    def __init__(self) -> None:
        super().__init__()


class NeedsTarget(Thermostat):
    """Thermostat that cannot be created without an argument."""

    def __init__(self, target: float) -> None:
        super().__init__(target)


class ScaledReward(gymnasium.RewardWrapper[Any, Any]):
    """Reward wrapper with one option."""

    def __init__(self, env: Any, factor: float = 0.5) -> None:
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> float:
        return float(reward) * self.factor


def make_thermostat(target: float = 21.0) -> Thermostat:
    return Thermostat(target)
