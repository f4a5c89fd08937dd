"""Old-style environments: ``reset`` returns only the observation, and ``step`` returns four values."""

from __future__ import annotations

import logging
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from rl4sys.components import ENVIRONMENT_REGISTRY, BaseEnvironment
from rl4sys.environments import old_style
from rl4sys.environments.base import step_limit
from rl4sys.environments.check import check_environment
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.factory import make_environment
from rl4sys.errors import ConfigError
from rl4sys.registry import ENVIRONMENTS
from rl4sys.runs.metrics import read_metrics

from ..cli.conftest import Rl4sys, rl4sys, runs_in  # noqa: F401 - a fixture

PLUGIN = """
import gymnasium
from rl4sys.components import BaseEnvironment, register_environment


@register_environment("old_corridor")
class Corridor(BaseEnvironment):
    def __init__(self, config):
        super().__init__(config)
        self.cells = config.options.get("cells", 5)

    def reset(self, seed=None):
        self.cell, self.steps = 0, 0
        return self.cell

    def step(self, action):
        self.cell = max(0, self.cell + (1 if action else -1))
        self.steps += 1
        there, late = self.cell == self.cells - 1, self.steps == 20
        return self.cell, float(there), there or late, {"TimeLimit.truncated": late and not there}

    @property
    def observation_space(self):
        return gymnasium.spaces.Discrete(self.cells)

    @property
    def action_space(self):
        return gymnasium.spaces.Discrete(2)
"""

CONFIG = """
plugins: [old_corridor.py]
experiment: {name: old, device: cpu}
algorithm: {name: ppo, minibatch_size: 32, lr: 1e-2}
environment: {name: old_corridor, options: {cells: 4}}
buffer: {size: 128}
training: {total_timesteps: 2048, eval_frequency: 1024, num_eval_episodes: 3, checkpoint_frequency: 512}
logging: {tensorboard: false}
"""


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Return an environment registry without the environments of other tests."""
    registered: dict[str, object] = {}
    monkeypatch.setattr(ENVIRONMENTS, "_own", registered)
    monkeypatch.setattr(old_style, "_reported", set())
    monkeypatch.setattr(old_style, "_returns_info_of", {})
    return registered


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "old_corridor.py").write_text(PLUGIN)
    (tmp_path / "old.yaml").write_text(CONFIG)
    return tmp_path / "old.yaml"


def test_old_style_environment_trains(
    rl4sys: Rl4sys,  # noqa: F811
    config: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcome = rl4sys("train", config)
    assert outcome.exit_code == 0, outcome.err
    lines = [record.getMessage() for record in caplog.records if "old Gym interface" in record.getMessage()]
    assert len(lines) == 1, "the adaptation is logged once, not once per copy"
    assert lines[0].startswith("the environment 'old_corridor' has the old Gym interface and was adapted: done means")
    run = runs_in(tmp_path / "experiments")[0]
    evaluations = [row for row in read_metrics(run / "metrics.jsonl") if "evaluation/return" in row]
    assert evaluations[-1]["evaluation/return"] == 1.0, "the policy should reach the end of the corridor"
    assert rl4sys("train", "--resume", run, "--total-timesteps", "2300").exit_code == 0
    assert '"mean_return": 1.0' in rl4sys("evaluate", run, "--episodes", "2", "--json").out


def test_check_env_accepts_an_old_style_environment(rl4sys: Rl4sys, config: Path) -> None:  # noqa: F811
    outcome = rl4sys("check-env", config)
    assert outcome.exit_code == 0, outcome.err
    assert "error" not in outcome.out


class OldGym(gymnasium.Env):
    """Gymnasium environment with the interface of OpenAI Gym."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, limit: int = 10) -> None:
        self.limit = limit

    def reset(self):
        self.steps = 0
        return self.np_random.uniform(-1, 1, 1).astype(np.float32)

    def step(self, action):
        self.steps += 1
        observation = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return observation, 1.0, self.steps >= self.limit, {"TimeLimit.truncated": self.limit == 3}


def make(kind: type, **options: object):
    ENVIRONMENT_REGISTRY["old_kind"] = kind
    return make_environment(EnvironmentConfig(name="old_kind", options=options))


def test_gymnasium_environment_with_old_interface_is_adapted() -> None:
    environment = make(OldGym)
    assert check_environment(lambda: environment) == [], "the seed must determine the episode"
    observation, info = environment.reset(seed=1)
    assert (observation.shape, info) == ((1,), {})
    assert environment.unwrapped.limit == 10


@pytest.mark.parametrize(("limit", "ends"), [(2, (True, False)), (3, (False, True))])
def test_time_limit_truncates_old_style_episodes(limit: int, ends: tuple[bool, bool]) -> None:
    environment = make(OldGym, limit=limit)
    environment.reset()
    steps = [environment.step(0)[2:4] for _ in range(limit)]
    assert steps == [*[(False, False)] * (limit - 1), ends]


def test_new_reset_signature_with_old_results_is_adapted() -> None:
    class Mixed(OldGym):
        def reset(self, *, seed=None, options=None):
            gymnasium.Env.reset(self, seed=seed)
            return OldGym.reset(self)

    environment = make(Mixed)
    assert check_environment(lambda: environment) == []


def test_old_environment_registered_with_gymnasium_keeps_its_step_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    gymnasium.register("OldKind-v0", OldGym, max_episode_steps=4)
    environment = make_environment(EnvironmentConfig(name="OldKind-v0"))
    assert step_limit(environment) == 4
    environment.reset(seed=0)
    assert [environment.step(0)[2:4] for _ in range(4)][-1] == (False, True)
    longer = make_environment(EnvironmentConfig(name="OldKind-v0", max_episode_steps=6))
    longer.reset(seed=0)
    assert [longer.step(0)[2:4] for _ in range(6)].index((False, True)) == 5


def test_seed_method_of_old_style_environment_is_called() -> None:
    class Seeded(OldGym):
        def seed(self, seed=None):
            self.seeded = seed

    environment = make(Seeded)
    environment.reset(seed=7)
    assert environment.unwrapped.seeded == 7


def test_environment_with_new_interface_is_not_wrapped() -> None:
    class New(OldGym):
        def reset(self, *, seed=None, options=None):
            gymnasium.Env.reset(self, seed=seed)
            return OldGym.reset(self), {}

    assert type(make(New)) is New


def test_class_with_config_parameter_receives_the_environment_config() -> None:
    class Configured(OldGym):
        def __init__(self, config) -> None:
            super().__init__()
            self.config = config

    made = make(Configured, size=3)
    assert made.unwrapped.config.options == {"size": 3}
    assert made.unwrapped.config.name == "old_kind"


def test_class_given_as_wrapper_is_adapted() -> None:
    ENVIRONMENT_REGISTRY["mine"] = OldGym
    environment = make_environment(EnvironmentConfig(name="task", wrapper="mine", options={"limit": 2}))
    assert environment.reset(seed=0)[1] == {}
    assert environment.unwrapped.limit == 2


class Incomplete(BaseEnvironment):
    def reset(self, seed=None):
        return 0


class NoSpaces(Incomplete):
    def step(self, action):
        return 0, 0.0, False, {}


class NoneSpaces(NoSpaces):
    observation_space = None
    action_space = None


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Incomplete, r"the environment 'old_kind' \(Incomplete\) has no step; an environment needs both methods"),
        (BaseEnvironment, r"has no reset and no step"),
        (NoSpaces, r"\(NoSpaces\) has the observation_space None; expected a Gymnasium space"),
        (NoneSpaces, r"\(NoneSpaces\) has the observation_space None; expected a Gymnasium space"),
        (object, r"\(object\) has no reset and no step"),
    ],
)
def test_incomplete_environment_is_rejected(kind: type, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        make(kind)


def test_adaptation_is_logged_once_per_class(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            make(OldGym) if "old_kind" not in ENVIRONMENT_REGISTRY else make_environment(
                EnvironmentConfig(name="old_kind")
            )
    assert len([record for record in caplog.records if "old Gym interface" in record.getMessage()]) == 1
