"""Learning from what was recorded: a server's journal, and how much better than it a policy can become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rl4sys.dataset import Dataset, DatasetConfig, load_dataset
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.evaluate import evaluate
from rl4sys.environments.player import Player
from rl4sys.learner import LearnerConfig, build_learner, parse_algorithm, parse_buffer, parse_networks
from rl4sys.spec import Array

from .recorded import CARTPOLE, balance, keep, record


def learnt_from(dataset: Dataset, updates: int, seed: int = 1, **options: Any) -> float:
    """How long the pole is held by a policy learnt so, at most 500."""
    config = LearnerConfig(
        algorithm=parse_algorithm({"train_frequency": 100, "gradient_steps": 5, "batch_size": 128, **options}),
        networks=parse_networks({}, options["name"]),
        buffer=parse_buffer({"size": dataset.steps}, options["name"]),
    )
    learner, player = build_learner(dataset.spec, config, seed), Player(dataset, np.random.SeedSequence(seed))
    done = 0
    while done < updates:
        done += len(learner.learn(player.collect(learner.policy(), learner.version, learner.wants())))
    environment = EnvironmentConfig(name="CartPole-v1")
    return evaluate(environment, learner.policy().greedy(), 20, 7).mean_return


def test_cloning_a_systems_rule_from_its_journal_reaches_it(tmp_path: Path) -> None:
    keep(tmp_path / "policy", record(balance, 12))
    dataset = load_dataset(DatasetConfig(type="journal", path=str(tmp_path / "policy")))
    assert dataset.spec == CARTPOLE
    assert dataset.steps == 12 * 500
    assert learnt_from(dataset, 800, name="bc") > 475


def test_learning_values_beats_cloning_where_what_was_done_was_mixed() -> None:
    def mostly_wrong(state: Array, rng: np.random.Generator) -> int:
        return balance(state) ^ int(rng.random() < 0.55)

    dataset = Dataset(CARTPOLE, tuple(record(mostly_wrong, 400, seed=1)))
    cloned = learnt_from(dataset, 2000, name="bc")
    valued = learnt_from(dataset, 2000, name="iql", expectile=0.9, temperature=10.0, lr=1e-3)
    print("\nrecorded", dataset.steps / 400, "cloned", cloned, "iql", valued)
    assert valued > 1.5 * cloned
