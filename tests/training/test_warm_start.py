"""Warm start from recorded decisions of a heuristic, for every algorithm, in local and live training."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4sys.algorithms.imitation import WarmStartConfig, imitate
from rl4sys.config import to_yaml
from rl4sys.dataset import DatasetConfig
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.evaluation import evaluate
from rl4sys.errors import ConfigError
from rl4sys.learner.learner import Learner, build_learner
from rl4sys.policy.base import Policy
from rl4sys.policy.draws import Draws
from rl4sys.registry import ALGORITHMS
from rl4sys.runs.config import parse_experiment
from rl4sys.runs.run import Run
from rl4sys.server.config import ServerConfig
from rl4sys.server.live_config import live_config, live_learner_config
from rl4sys.spec import Array, Columns, Discrete, Spec
from rl4sys.training.loop import TrainingLoop
from rl4sys.training.warm_start import warm_start
from rl4sys.trajectory import Trajectory

from ..conftest import SMALL, SilentObserver
from ..contracts.test_algorithms import CONTINUOUS, DISCRETE, observe
from ..live import SPEC, WireClient, running_server
from ..recorded import PENDULUM, balance, record, swing, write_journal
from .test_loop import CallsAtRound, fingerprint

MakeLoop = Callable[..., TrainingLoop]


def heuristic(spec: Spec, seen: Columns) -> Array:
    """Return the actions of the heuristic: index of the smallest allowed element, or -0.8 times the first element."""
    if isinstance(spec.action, Discrete):
        return np.asarray(np.where(seen["mask"], seen["state"], np.inf).argmin(-1))
    return np.asarray(np.clip(-0.8 * seen["state"][:, :1], -1, 1))


def heuristic_trajectories(spec: Spec) -> list[Trajectory]:
    seen = observe(spec, np.random.default_rng(0), 2001)
    columns = {f"obs.{name}": column for name, column in seen.items()}
    columns["action"] = heuristic(spec, seen)[:-1]
    columns |= {name: np.zeros(2000, np.float32) for name in ("reward", "log_prob")}
    return [Trajectory(0, columns)]


def make_learner(name: str, spec: Spec, path: Path, **blocks: Any) -> Learner:
    start = {"dataset": {"type": "journal", "path": str(path)}, "gradient_steps": 300, "batch_size": 128, "lr": 5e-3}
    config = parse_experiment(
        {
            "algorithm": {"name": name},
            "environment": {"name": "heuristic", "wrapper": "live"},
            "warm_start": start,
            "buffer": {"size": 100},
            **blocks,
        }
    )
    learner = build_learner(spec, config.learner("cpu"), seed=1)
    warm_start(learner, spec, config)
    return learner


def error(learner: Learner, spec: Spec) -> float:
    """Return the error rate (discrete) or mean distance (continuous) between the greedy policy and the heuristic."""
    seen = observe(spec, np.random.default_rng(5), 500)
    action = learner.policy().greedy().act(seen, {}, Draws(0)).action
    wrong = (
        action != heuristic(spec, seen) if isinstance(spec.action, Discrete) else np.abs(action - heuristic(spec, seen))
    )
    return float(np.mean(wrong))


def supports(name: str, spec: Spec) -> bool:
    """Return True if the algorithm supports the action space."""
    continuous_only, discrete_only = ("rpo", "td3", "ddpg", "sql"), ("dqn", "c51", "qr_dqn", "rainbow")
    return name not in (continuous_only if isinstance(spec.action, Discrete) else discrete_only)


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("journals")
    return {kind: write_journal(root / kind, heuristic_trajectories(spec), spec) for kind, spec in SPECS.items()}


SPECS = {"discrete": DISCRETE, "continuous": CONTINUOUS}
EVERY = [(name, kind) for kind, spec in SPECS.items() for name in ALGORITHMS.names() if supports(name, spec)]


@pytest.mark.parametrize(("name", "kind"), EVERY)
def test_warm_started_policy_imitates_the_heuristic(name: str, kind: str, journals: dict[str, Path]) -> None:
    learner = make_learner(name, SPECS[kind], journals[kind])
    assert learner.version == learner.steps == 0
    assert error(learner, SPECS[kind]) < 0.1


@pytest.mark.parametrize("name", ["sac", "td3", "sql"])
def test_warm_started_policy_takes_no_random_actions(name: str, journals: dict[str, Path]) -> None:
    learner = make_learner(name, CONTINUOUS, journals["continuous"])
    seen = observe(CONTINUOUS, np.random.default_rng(5), 500)
    action = learner.policy().act(seen, {}, Draws(0)).action
    assert np.abs(action - heuristic(CONTINUOUS, seen)).mean() < 0.2


@pytest.mark.parametrize(
    ("name", "kind", "network", "target"),
    [("td3", "continuous", "actor", "target_actor"), ("dqn", "discrete", "critic", "target")],
)
def test_target_networks_equal_warm_started_networks(
    name: str, kind: str, network: str, target: str, journals: dict[str, Path]
) -> None:
    state = make_learner(name, SPECS[kind], journals[kind]).state()["algorithm"]
    for weight, array in state[network].items():
        np.testing.assert_array_equal(array, state[target][weight])


def test_warm_start_initializes_observation_statistics(journals: dict[str, Path]) -> None:
    normal = {"environment": {"name": "heuristic", "wrapper": "live", "normalize_obs": True}}
    learner = make_learner("ppo", CONTINUOUS, journals["continuous"], **normal)
    assert learner.state()["observations"]["moments"]["state"]["count"] == 2000
    assert error(learner, CONTINUOUS) < 0.1


def initial_policy(name: str, environment: str, journal: Path, tmp_path: Path) -> Policy:
    """Return the greedy policy of a run before its first step."""
    settings = {
        **SMALL["ppo"],
        "algorithm": {"name": name},
        "environment": {"name": environment},
        "network": {},
        "buffer": {"size": 2048},
        "warm_start": {"dataset": {"type": "journal", "path": str(journal)}, "gradient_steps": 400, "lr": 3e-3},
    }
    loop = TrainingLoop(Run.create(tmp_path, parse_experiment(settings), datetime.now()), SilentObserver())
    return loop._learner.policy().greedy()


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_warm_started_policy_balances_cartpole_before_training(name: str, tmp_path: Path) -> None:
    policy = initial_policy(name, "CartPole-v1", write_journal(tmp_path / "journal", record(balance, 4)), tmp_path)
    assert evaluate(EnvironmentConfig(name="CartPole-v1"), policy, 5, 7).mean_return > 400


@pytest.mark.parametrize("name", ["ppo", "sac", "td3"])
def test_warm_started_policy_imitates_continuous_actions_before_training(name: str, tmp_path: Path) -> None:
    recorded = record(swing, 5, environment="Pendulum-v1")
    policy = initial_policy(name, "Pendulum-v1", write_journal(tmp_path / "journal", recorded[:4], PENDULUM), tmp_path)
    unseen = recorded[4].columns
    action = policy.act({"state": unseen["obs.state"][:-1]}, {}, Draws(0)).action
    assert np.abs(action - unseen["action"]).mean() < 0.2 < np.abs(unseen["action"]).mean() - 1


@pytest.mark.parametrize("name", ["ppo", "dqn", "sac"])
def test_warm_started_run_resumes_exactly_without_its_dataset(name: str, tmp_path: Path, make_loop: MakeLoop) -> None:
    def stop() -> None:
        stopped.stop()

    journal = write_journal(tmp_path / "journal", record(balance, 1))
    block = f"warm_start={{dataset: {{type: journal, path: {journal}}}, gradient_steps: 20}}"
    straight, cold = make_loop(name, block), make_loop(name)
    assert fingerprint(straight) != fingerprint(cold)
    straight.train()
    stopped = make_loop(name, block, observer=CallsAtRound(stop, at=3))
    stopped.train()
    assert 0 < stopped.progress().steps < straight.progress().steps
    shutil.rmtree(journal)
    resumed = make_loop(name, run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert fingerprint(resumed) == fingerprint(straight)
    assert resumed._run.metrics.read_bytes() == straight._run.metrics.read_bytes()


@pytest.mark.parametrize(
    ("name", "blocks", "message"),
    [
        ("ppo", {"network": {"actor": {"type": "gru"}}}, "single decisions, but the actor network is recurrent"),
        ("ppo", {}, r"the dataset has observations .*, but the policy has"),
    ],
)
def test_unsupported_warm_starts_are_rejected(
    name: str, blocks: dict[str, Any], message: str, journals: dict[str, Path]
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_learner(name, DISCRETE, journals["discrete" if blocks else "continuous"], **blocks)


def test_warm_start_of_algorithm_without_imitation_is_rejected() -> None:
    own: Any = object()
    config = WarmStartConfig(dataset=DatasetConfig(type="journal", path="x"))
    with pytest.raises(
        ConfigError,
        match=r"warm_start is set, but this algorithm does not support .* \(it has no imitation\(\) method\)",
    ):
        imitate(own, config, {}, np.random.default_rng(0))


def test_live_warm_start_equals_local_one_and_is_rejected_from_clients(tmp_path: Path) -> None:
    journal = write_journal(tmp_path / "journal", [Trajectory(0, random_columns())], SPEC)
    start = {"dataset": {"type": "journal", "path": str(journal)}, "gradient_steps": 50}
    settings = {"algorithm": {"name": "ppo"}, "warm_start": start, "seed": 5}
    (tmp_path / "server.yaml").write_text(to_yaml({"policies": {"warm": settings}}))
    with running_server(tmp_path / "live", "--config", str(tmp_path / "server.yaml")) as server:
        with WireClient(server.address) as client:
            client.hello("warm")
            model = client.receive("snapshot")
        with WireClient(server.address) as client:
            client.hello("thief", settings=settings)
            assert "clients cannot set warm_start.dataset.path" in client.wait_for_refusal().message
    config = live_config("warm", settings, ServerConfig(policies={"warm": settings}))
    local = build_learner(SPEC, live_learner_config(config, "cpu"), seed=5)
    cold = local.snapshot().to_bytes()
    warm_start(local, SPEC, config)
    assert model.full == local.snapshot().to_bytes() != cold


def random_columns() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    state = rng.standard_normal((101, 3)).astype(np.float32)
    columns = {"obs.state": state, "action": (state[:-1, 0] > 0).astype(np.int64)}
    return columns | {name: np.zeros(100, np.float32) for name in ("reward", "log_prob")}
