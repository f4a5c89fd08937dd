"""Tests of the command ``rl4sys check-env``."""

from __future__ import annotations

from pathlib import Path

from .conftest import Rl4sys

BROKEN = """
import gymnasium, numpy as np
from rl4sys.registry import register_environment

@register_environment("broken_walk")
class Broken(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, reward=None):
        self.reward = reward
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), self.reward, False, False, {}
"""


def test_check_env_accepts_environment_name(rl4sys: Rl4sys) -> None:
    outcome = rl4sys("check-env", "CartPole-v1", "--steps", "30")
    assert (outcome.exit_code, outcome.out) == (0, "CartPole-v1: no problems found\n")


def test_check_env_accepts_changed_settings(rl4sys: Rl4sys) -> None:
    outcome = rl4sys("check-env", "BipedalWalker-v3", "--steps", "60")
    assert (outcome.exit_code, outcome.out[:28]) == (0, "warning: reset(seed) does no")
    assert rl4sys("check-env", "BipedalWalker-v3", "remake=true", "--steps", "60").out.endswith("no problems found\n")


def test_check_env_accepts_config_with_plugin(rl4sys: Rl4sys, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "own.yaml").write_text("plugins: [broken.py]\nenvironment: {name: broken_walk}\n")
    outcome = rl4sys("check-env", "own.yaml")
    assert (outcome.exit_code, outcome.out) == (2, "error: the reward is NoneType, not a number: return a float\n")
    assert rl4sys("check-env", "own.yaml", "options.reward=1.5").exit_code == 0


def test_unknown_environment_is_rejected_with_suggestion(rl4sys: Rl4sys) -> None:
    outcome = rl4sys("check-env", "CartPol-v1")
    assert outcome.exit_code == 2
    assert "did you mean CartPole-v1?" in outcome.err
