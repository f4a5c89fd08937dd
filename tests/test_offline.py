"""Offline learning from a server journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rl4sys.dataset import Dataset, DatasetConfig, load_dataset
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.dataset_actor import DatasetActor
from rl4sys.environments.evaluation import evaluate
from rl4sys.learner.config import LearnerConfig, parse_algorithm, parse_buffer, parse_networks
from rl4sys.learner.learner import build_learner
from rl4sys.spec import Array

from .recorded import CARTPOLE, balance, record, write_journal


def trained_return(dataset: Dataset, updates: int, seed: int = 1, **options: Any) -> float:
    """Train on the dataset. Returns the mean episode return of evaluations in CartPole, at most 500."""
    config = LearnerConfig(
        algorithm=parse_algorithm({"train_frequency": 100, "gradient_steps": 5, "batch_size": 128, **options}),
        networks=parse_networks({}, options["name"]),
        buffer=parse_buffer({"size": dataset.steps}, options["name"]),
    )
    learner, player = build_learner(dataset.spec, config, seed), DatasetActor(dataset, np.random.SeedSequence(seed))
    done = 0
    while done < updates:
        done += len(learner.learn(player.collect(learner.policy(), learner.version, learner.steps_to_next_update())))
    environment = EnvironmentConfig(name="CartPole-v1")
    return evaluate(environment, learner.policy().greedy(), 20, 7).mean_return


def test_bc_reaches_the_return_of_the_recorded_policy(tmp_path: Path) -> None:
    write_journal(tmp_path / "policy", record(balance, 12))
    dataset = load_dataset(DatasetConfig(type="journal", path=str(tmp_path / "policy")))
    assert dataset.spec == CARTPOLE
    assert dataset.steps == 12 * 500
    assert trained_return(dataset, 800, name="bc") > 475


def test_iql_beats_bc_on_mixed_data() -> None:
    def mostly_wrong(state: Array, rng: np.random.Generator) -> int:
        return balance(state) ^ int(rng.random() < 0.55)

    dataset = Dataset(CARTPOLE, tuple(record(mostly_wrong, 400, seed=1)))
    cloned = trained_return(dataset, 2000, name="bc")
    valued = trained_return(dataset, 2000, name="iql", expectile=0.9, temperature=10.0, lr=1e-3)
    print("\nrecorded", dataset.steps / 400, "cloned", cloned, "iql", valued)
    assert valued > 1.5 * cloned
