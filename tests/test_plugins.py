"""Plugins: user-defined algorithms, networks, buffers and environments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rl4sys.config import load
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.factory import make_environment
from rl4sys.errors import ConfigError
from rl4sys.registry import ENVIRONMENTS, PLUGIN_GROUP, load_plugins, register_algorithm, register_environment
from rl4sys.runs.config import parse_experiment
from rl4sys.runs.metrics import read_metrics

from .cli.conftest import Rl4sys, rl4sys  # noqa: F401 - a fixture

TUTORIAL = Path(__file__).parent.parent / "docs" / "own_algorithm.md"

OWN_PARTS = '''
import gymnasium
import numpy as np
import torch
from torch import nn

from rl4sys.buffers.rollout import Rollout
from rl4sys.networks.base import NetworkConfig, flatten
from rl4sys.policy.snapshot import input_size
from rl4sys.registry import register_buffer, register_environment, register_network


class WideConfig(NetworkConfig):
    width: int = 16
    """Width of the hidden layer."""


@register_network("wide")
class Wide(nn.Module):
    Config = WideConfig

    def __init__(self, config, blueprint):
        super().__init__()
        self.spec = blueprint.spec
        self.body = nn.Linear(input_size(blueprint.spec), config.width)
        self.out = nn.Linear(config.width, blueprint.outputs)

    def forward(self, observation):
        return self.out(torch.sin(self.body(flatten(observation, self.spec))))


@register_buffer("own_rollout")
class OwnRollout(Rollout):
    pass


class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(5)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = int(self.np_random.integers(3))
        return self.cell, {}

    def step(self, action):
        self.cell = max(0, self.cell + (1 if action else -1))
        return self.cell, float(self.cell == 4), self.cell == 4, False, {}


@register_environment("corridor")
def make_corridor(config):
    return Corridor()
'''

OWN_CONFIG = """
plugins: [own_parts.py]
experiment: {name: own, device: cpu}
algorithm: {name: ppo, minibatch_size: 32, lr: 5e-3}
environment: {name: corridor, num_envs: 2, max_episode_steps: 20, normalize_obs: true}
network: {actor: {type: wide}, critic: {type: wide, width: 8}}
buffer: {type: own_rollout, size: 128}
training: {total_timesteps: 2048, eval_frequency: 1024, num_eval_episodes: 3}
logging: {tensorboard: false}
"""


def test_plugin_network_buffer_and_environment_can_be_trained(rl4sys: Rl4sys, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "own_parts.py").write_text(OWN_PARTS)
    (tmp_path / "lab" / "own.yaml").write_text(OWN_CONFIG)
    outcome = rl4sys("train", "lab/own.yaml")
    assert outcome.exit_code == 0, outcome.err
    run = next(path for path in (tmp_path / "experiments").iterdir() if path.is_dir())
    evaluations = [row for row in read_metrics(run / "metrics.jsonl") if "evaluation/return" in row]
    assert evaluations[-1]["evaluation/return"] == 1.0, "the policy should reach the end of the corridor"
    assert not (run / "checkpoints/latest/policy.safetensors").exists(), "policy programs have no sine operation"
    resumed = rl4sys("train", "--resume", run, "--total-timesteps", "2300")
    assert resumed.exit_code == 0, "the plugin file should be found from another directory"
    evaluated = rl4sys("evaluate", run, "--episodes", "2", "--json")
    assert '"mean_return": 1.0' in evaluated.out


def test_pipeline_rejects_networks_that_only_torch_can_run(rl4sys: Rl4sys, tmp_path: Path) -> None:  # noqa: F811
    network = OWN_PARTS.partition('@register_buffer("own_rollout")')[0].replace('"wide"', '"wide_again"')
    (tmp_path / "own_network.py").write_text(network)
    (tmp_path / "own.yaml").write_text("""
plugins: [own_network.py]
algorithm: {name: ppo}
environment: {name: CartPole-v1}
network: {actor: {type: wide_again}}
training: {pipeline: true}
""")
    outcome = rl4sys("train", "own.yaml")
    assert outcome.exit_code == 2
    assert "training.pipeline does not support this network" in outcome.err


def test_tutorial_algorithm_learns(rl4sys: Rl4sys, tmp_path: Path) -> None:  # noqa: F811
    algorithm = TUTORIAL.read_text().partition("## An environment of your own")[0].partition("the portable form\n")[2]
    blocks = dict(re.findall(r"```(python|yaml)\n(.*?)```", algorithm, re.DOTALL))
    assert len(blocks["python"].splitlines()) <= 45
    (tmp_path / "my_portable_algorithm.py").write_text(blocks["python"])
    (tmp_path / "my_experiment.yaml").write_text(blocks["yaml"])
    outcome = rl4sys("train", "my_experiment.yaml")
    assert outcome.exit_code == 0, outcome.err
    run = next(path for path in (tmp_path / "experiments").iterdir() if path.is_dir())
    returns = [row["evaluation/return"] for row in read_metrics(run / "metrics.jsonl") if "evaluation/return" in row]
    assert max(returns) > 100, "an untrained policy keeps the pole up for about 10 steps"


def test_installed_package_registers_components_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    class EntryPoint:
        def load(self) -> None:
            register_environment("brought_along")(object)

    monkeypatch.setattr("rl4sys.registry.entry_points", lambda group: [EntryPoint()] if group == PLUGIN_GROUP else [])
    assert ENVIRONMENTS.get("brought_along") is object


def test_registered_name_cannot_be_reused() -> None:
    with pytest.raises(ConfigError, match="an algorithm named 'ppo' is already registered; choose another name"):
        register_algorithm("ppo")(type("Mine", (), {}))


def test_error_inside_a_plugin_is_reported(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    (tmp_path / "a.yaml").write_text("plugins: [broken.py]\n")
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=r"the plugin .*broken\.py could not be imported: .*no_such_module_at_all"
        ):
            parse_experiment(load(tmp_path / "a.yaml"), beside=tmp_path)


def test_environment_class_receives_the_config_options(tmp_path: Path) -> None:
    (tmp_path / "corridor_parts.py").write_text(
        OWN_PARTS.partition("@register_environment")[0].replace("wide", "broad").replace("own_rollout", "its_rollout")
    )
    (tmp_path / "own_class.py").write_text(
        "from corridor_parts import Corridor\n"
        "from rl4sys.registry import register_environment\n"
        "@register_environment('long_corridor')\n"
        "class Long(Corridor):\n"
        "    def __init__(self, cells=5):\n"
        "        self.cells = cells\n"
    )
    load_plugins(["own_class.py"], tmp_path)
    made = make_environment(EnvironmentConfig(name="long_corridor", options={"cells": 9}))
    assert made.unwrapped.cells == 9  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"environment\.options is \{'cell': 9\}, but 'long_corridor' cannot"):
        make_environment(EnvironmentConfig(name="long_corridor", options={"cell": 9}))
