"""Policies that start from what a heuristic did: from their first version on, in every algorithm, locally and live."""

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
from rl4sys.environments.evaluate import evaluate
from rl4sys.errors import ConfigError
from rl4sys.experiment.config import parse_experiment
from rl4sys.experiment.recorded import warm_start
from rl4sys.experiment.run import Run
from rl4sys.learner import Learner, build_learner
from rl4sys.policy.base import Policy
from rl4sys.policy.draws import Draws
from rl4sys.registry import ALGORITHMS
from rl4sys.server.config import ServerConfig
from rl4sys.server.settings import live_config, live_learner_config
from rl4sys.spec import Array, Columns, Discrete, Spec
from rl4sys.trainer import Trainer
from rl4sys.trajectory import Trajectory

from .conftest import SMALL, Silent
from .contracts.test_algorithms import CHOICES, NUMBERS, observe
from .live import SPEC, WireClient, running_server
from .recorded import PENDULUM, balance, keep, record, swing
from .test_trainer import Calls, fingerprint

MakeTrainer = Callable[..., Trainer]


def rule(spec: Spec, seen: Columns) -> Array:
    """What the heuristic does: the least of the legal elements, or the opposite of the first."""
    if isinstance(spec.action, Discrete):
        return np.asarray(np.where(seen["mask"], seen["state"], np.inf).argmin(-1))
    return np.asarray(np.clip(-0.8 * seen["state"][:, :1], -1, 1))


def made_by_rule(spec: Spec) -> list[Trajectory]:
    seen = observe(spec, np.random.default_rng(0), 2001)
    columns = {f"obs.{name}": column for name, column in seen.items()}
    columns["action"] = rule(spec, seen)[:-1]
    columns |= {name: np.zeros(2000, np.float32) for name in ("reward", "log_prob")}
    return [Trajectory(0, columns)]


def make_learner(name: str, spec: Spec, path: Path, **blocks: Any) -> Learner:
    start = {"dataset": {"type": "journal", "path": str(path)}, "gradient_steps": 300, "batch_size": 128, "lr": 5e-3}
    config = parse_experiment(
        {
            "algorithm": {"name": name},
            "environment": {"name": "rule", "wrapper": "live"},
            "warm_start": start,
            "buffer": {"size": 100},
            **blocks,
        }
    )
    learner = build_learner(spec, config.learner("cpu"), seed=1)
    warm_start(learner, spec, config)
    return learner


def mistakes(learner: Learner, spec: Spec) -> float:
    """How often, or how far, the policy does something else, greedily."""
    seen = observe(spec, np.random.default_rng(5), 500)
    did = learner.policy().greedy().act(seen, {}, Draws(0)).action
    wrong = did != rule(spec, seen) if isinstance(spec.action, Discrete) else np.abs(did - rule(spec, seen))
    return float(np.mean(wrong))


def knows(name: str, spec: Spec) -> bool:
    """Whether the algorithm is for such actions."""
    numbers, choices = ("rpo", "td3", "ddpg", "sql"), ("dqn", "c51", "qr_dqn", "rainbow")
    return name not in (numbers if isinstance(spec.action, Discrete) else choices)


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("journals")
    return {kind: keep(root / kind, made_by_rule(spec), spec) for kind, spec in SPECS.items()}


SPECS = {"choices": CHOICES, "numbers": NUMBERS}
EVERY = [(name, kind) for kind, spec in SPECS.items() for name in ALGORITHMS.names() if knows(name, spec)]


@pytest.mark.parametrize(("name", "kind"), EVERY)
def test_the_first_version_of_every_algorithm_does_as_was_done(name: str, kind: str, journals: dict[str, Path]) -> None:
    learner = make_learner(name, SPECS[kind], journals[kind])
    assert learner.version == learner.steps == 0
    assert mistakes(learner, SPECS[kind]) < 0.1


@pytest.mark.parametrize("name", ["sac", "td3", "sql"])
def test_what_is_known_is_done_and_nothing_at_random(name: str, journals: dict[str, Path]) -> None:
    learner = make_learner(name, NUMBERS, journals["numbers"])
    seen = observe(NUMBERS, np.random.default_rng(5), 500)
    did = learner.policy().act(seen, {}, Draws(0)).action
    assert np.abs(did - rule(NUMBERS, seen)).mean() < 0.2


@pytest.mark.parametrize(
    ("name", "kind", "network", "target"),
    [("td3", "numbers", "actor", "target_actor"), ("dqn", "choices", "critic", "target")],
)
def test_target_networks_start_from_the_same(
    name: str, kind: str, network: str, target: str, journals: dict[str, Path]
) -> None:
    state = make_learner(name, SPECS[kind], journals[kind]).state()["algorithm"]
    for weight, array in state[network].items():
        np.testing.assert_array_equal(array, state[target][weight])


def test_observations_are_seen_as_later_with_the_statistics_of_what_was_recorded(journals: dict[str, Path]) -> None:
    normal = {"environment": {"name": "rule", "wrapper": "live", "normalize_obs": True}}
    learner = make_learner("ppo", NUMBERS, journals["numbers"], **normal)
    assert learner.state()["observations"]["moments"]["state"]["count"] == 2000
    assert mistakes(learner, NUMBERS) < 0.1


def begun(name: str, environment: str, journal: Path, tmp_path: Path) -> Policy:
    """What a run acts by before its first step, greedily."""
    settings = {
        **SMALL["ppo"],
        "algorithm": {"name": name},
        "environment": {"name": environment},
        "network": {},
        "buffer": {"size": 2048},
        "warm_start": {"dataset": {"type": "journal", "path": str(journal)}, "gradient_steps": 400, "lr": 3e-3},
    }
    trainer = Trainer(Run.create(tmp_path, parse_experiment(settings), datetime.now()), Silent())
    return trainer._learner.policy().greedy()


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_a_run_begins_with_the_heuristic_of_choices(name: str, tmp_path: Path) -> None:
    policy = begun(name, "CartPole-v1", keep(tmp_path / "journal", record(balance, 4)), tmp_path)
    assert evaluate(EnvironmentConfig(name="CartPole-v1"), policy, 5, 7).mean_return > 400


@pytest.mark.parametrize("name", ["ppo", "sac", "td3"])
def test_a_run_begins_with_the_heuristic_of_numbers(name: str, tmp_path: Path) -> None:
    recorded = record(swing, 5, environment="Pendulum-v1")
    policy = begun(name, "Pendulum-v1", keep(tmp_path / "journal", recorded[:4], PENDULUM), tmp_path)
    unseen = recorded[4].columns
    did = policy.act({"state": unseen["obs.state"][:-1]}, {}, Draws(0)).action
    assert np.abs(did - unseen["action"]).mean() < 0.2 < np.abs(unseen["action"]).mean() - 1


@pytest.mark.parametrize("name", ["ppo", "dqn", "sac"])
def test_a_warm_started_run_resumes_exactly_and_without_its_data(
    name: str, tmp_path: Path, make_trainer: MakeTrainer
) -> None:
    def stop() -> None:
        stopped.stop()

    journal = keep(tmp_path / "journal", record(balance, 1))
    block = f"warm_start={{dataset: {{type: journal, path: {journal}}}, gradient_steps: 20}}"
    straight, cold = make_trainer(name, block), make_trainer(name)
    assert fingerprint(straight) != fingerprint(cold)
    straight.train()
    stopped = make_trainer(name, block, observer=Calls(stop, at=3))
    stopped.train()
    assert 0 < stopped.progress().steps < straight.progress().steps
    shutil.rmtree(journal)
    resumed = make_trainer(name, run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert fingerprint(resumed) == fingerprint(straight)
    assert resumed._run.metrics.read_bytes() == straight._run.metrics.read_bytes()


@pytest.mark.parametrize(
    ("name", "blocks", "says"),
    [
        ("ppo", {"network": {"actor": {"type": "gru"}}}, "single decisions, and the network that acts remembers"),
        ("ppo", {}, r"the data set has observations .*, and the policy that is to learn from it has"),
    ],
)
def test_what_cannot_start_so_is_refused(
    name: str, blocks: dict[str, Any], says: str, journals: dict[str, Path]
) -> None:
    with pytest.raises(ConfigError, match=says):
        make_learner(name, CHOICES, journals["choices" if blocks else "numbers"], **blocks)


def test_an_algorithm_that_does_not_say_what_it_acts_by_is_refused() -> None:
    own: Any = object()
    config = WarmStartConfig(dataset=DatasetConfig(type="journal", path="x"))
    with pytest.raises(ConfigError, match=r"there is a warm_start, and this algorithm has no imitation\(\) to start"):
        imitate(own, config, {}, np.random.default_rng(0))


def test_a_live_policy_starts_as_a_local_one_and_only_the_server_names_the_data(tmp_path: Path) -> None:
    journal = keep(tmp_path / "journal", [Trajectory(0, some_columns())], SPEC)
    start = {"dataset": {"type": "journal", "path": str(journal)}, "gradient_steps": 50}
    settings = {"algorithm": {"name": "ppo"}, "warm_start": start, "seed": 5}
    (tmp_path / "server.yaml").write_text(to_yaml({"policies": {"warm": settings}}))
    with running_server(tmp_path / "live", "--config", str(tmp_path / "server.yaml")) as server:
        with WireClient(server.address) as client:
            client.hello("warm")
            model = client.hear("snapshot")
        with WireClient(server.address) as client:
            client.hello("thief", settings=settings)
            assert "warm_start.dataset.path is for files of the server" in client.refused().message
    config = live_config("warm", settings, ServerConfig(policies={"warm": settings}))
    local = build_learner(SPEC, live_learner_config(config, "cpu"), seed=5)
    cold = local.snapshot().to_bytes()
    warm_start(local, SPEC, config)
    assert model.full == local.snapshot().to_bytes() != cold


def some_columns() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    state = rng.standard_normal((101, 3)).astype(np.float32)
    columns = {"obs.state": state, "action": (state[:-1, 0] > 0).astype(np.int64)}
    return columns | {name: np.zeros(100, np.float32) for name in ("reward", "log_prob")}
