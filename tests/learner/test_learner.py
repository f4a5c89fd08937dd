"""Parameter count and buffer size of a Learner, computed before it is built."""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np
import pytest
from torch import nn

from rl4sys.buffers.base import Demand
from rl4sys.buffers.rollout import Rollout, RolloutConfig
from rl4sys.errors import ConfigError
from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer, parse_networks
from rl4sys.learner.footprint import learner_cost
from rl4sys.learner.learner import build_learner
from rl4sys.registry import ALGORITHMS, BUFFERS
from rl4sys.spec import Box, Discrete, Spec
from rl4sys.trajectory import Trajectory

DISCRETE = Spec({"state": Box((4,)), "mask": Box((3,), "bool")}, Discrete(3))
CONTINUOUS = Spec({"state": Box((2, 5)), "flags": Box((7,), "uint8")}, Box((6,)))


def make_config(algorithm: str, networks: dict[str, Any], size: int = 100, **options: Any) -> LearnerConfig:
    return LearnerConfig(
        algorithm=parse_algorithm({"name": algorithm, **options}),
        networks=parse_networks(networks, algorithm),
        buffer=parse_buffer({"size": size}, algorithm),
        total_timesteps=1000,
    )


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS])
@pytest.mark.parametrize("networks", [{}, {"critic": {"hidden_dims": [8]}}, {"actor": {"hidden_dims": []}}])
def test_ppo_parameter_count_matches_its_networks(spec: Spec, networks: dict[str, Any]) -> None:
    config = make_config("ppo", networks)
    built: Any = build_learner(spec, config, seed=1).algorithm
    assert learner_cost(spec, config).parameters == count(built._networks.actor) + count(built._networks.critic)


@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("networks", [{}, {"critic": {"hidden_dims": [8], "activation": "relu"}}])
def test_dqn_parameter_count_matches_its_critic(dueling: bool, networks: dict[str, Any]) -> None:
    config = make_config("dqn", networks, dueling=dueling)
    built: Any = build_learner(DISCRETE, config, seed=1).algorithm
    assert learner_cost(DISCRETE, config).parameters == count(built._critic)


def test_unsupported_actions_are_rejected_before_counting() -> None:
    with pytest.raises(
        ConfigError, match="dqn supports discrete actions, but the action space is unbounded continuous"
    ):
        learner_cost(CONTINUOUS, make_config("dqn", {}))


def test_networks_of_a_plugin_without_blueprints_are_counted_as_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own:
        Config = ALGORITHMS.get("ppo").Config
        roles = ("one", "other")
        default_buffer = {"type": "trajectory", "size": 10}  # noqa: RUF012

    monkeypatch.setattr(ALGORITHMS, "_own", {"own": Own})
    config = make_config("own", {"one": {"hidden_dims": []}, "other": {"hidden_dims": []}})
    assert learner_cost(DISCRETE, config).parameters == 2 * (4 * 3 + 3)


def trajectory(spec: Spec, steps: int) -> Trajectory:
    columns = {f"obs.{name}": np.zeros((steps + 1, *box.shape), box.dtype) for name, box in spec.observation.items()}
    columns["action"] = np.zeros((steps, *spec.action.shape), spec.action.dtype)
    columns["reward"] = columns["log_prob"] = np.zeros(steps, np.float32)
    return Trajectory(0, columns, terminated=True)


@pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS])
def test_rollout_buffer_bytes_are_exact(spec: Spec) -> None:
    buffer = Rollout(RolloutConfig(type="trajectory", size=100), Demand())
    buffer.add(trajectory(spec, 100), version=0)
    held = sum(column.nbytes for column in buffer.state()["columns"].values())
    assert learner_cost(spec, make_config("ppo", {}, size=100)).buffer_bytes == held


def columns_of(part: object) -> list[np.ndarray]:
    """Return every array reachable from an object."""
    if isinstance(part, np.ndarray):
        return [part]
    inside = (
        list(part.values())
        if isinstance(part, dict)
        else list(vars(part).values())
        if hasattr(part, "__dict__")
        else []
    )
    return [array for item in inside for array in columns_of(item)]


REPLAYS = {
    "uniform": {},
    "uniform, unstacked": {"unstack": True},
    "prioritized": {},
    "sequence": {},
    "her": {"reward": "distance"},
}


@pytest.mark.parametrize("case", REPLAYS)
def test_replay_buffer_bytes_match_a_full_buffer(case: str) -> None:
    spec = Spec({"image": Box((4, 9, 9), "uint8"), "achieved_goal": Box((3,)), "desired_goal": Box((3,))}, Discrete(3))
    options = parse_buffer({"type": case.partition(",")[0], "size": 3000, **REPLAYS[case]}, "dqn")
    buffer = BUFFERS.get(options.type)(options, Demand())
    buffer.add(trajectory(spec, 3000), version=0)
    config = make_config("dqn", {}).model_copy(update={"buffer": options})
    held = sum(column.nbytes for column in columns_of(buffer))
    assert 0.97 * held <= learner_cost(spec, config).buffer_bytes < 1.1 * held + 40_000


def test_parameters_of_a_huge_learner_are_counted_without_allocation() -> None:
    spec = Spec({"state": Box((10**6,))}, Discrete(10**6))
    largest = {"hidden_dims": [16384] * 64}
    config = make_config("ppo", {"actor": largest, "critic": largest}, size=10**9)
    learner_cost(DISCRETE, make_config("ppo", {}))
    memory, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    cost = learner_cost(spec, config)
    seconds = time.perf_counter() - started
    body = (10**6 + 1) * 16384 + 63 * (16384 + 1) * 16384
    assert cost.parameters == 2 * body + (16384 + 1) * (10**6 + 1)
    assert cost.buffer_bytes == 10**9 * (2 * 4 * 10**6 + 8 + 19)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 10_000, "less than 10 MB"
    assert seconds < 1, "0.02 s on an idle machine"
