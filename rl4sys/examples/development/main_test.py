"""Tests of the example: a short training run on Pendulum, its checkpoints and its policy.

python -m pytest examples/development/main_test.py
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from rl4sys.config import Settings, merged

from .main import ExperimentRunner
from .variants import get_variant_spec

SHORT: Settings = {
    "algorithm_params": {
        "config": {"n_epochs": 3, "epoch_length": 100, "num_warmup_samples": 100, "eval_n_episodes": 1}
    },
    "policy_params": {"config": {"hidden_layer_sizes": [16]}},
    "Q_params": {"config": {"hidden_layer_sizes": [16]}},
    "run_params": {"seed": 1, "checkpoint_frequency": 100},
}


def short_variant(algorithm: str) -> Settings:
    args = Namespace(algorithm=algorithm, universe="gym", domain="Pendulum", task="v1")
    return merged(get_variant_spec(args), SHORT)


@pytest.mark.parametrize("algorithm", ["SAC", "SQL"])
def test_variant_trains(algorithm: str, tmp_path: Path) -> None:
    runner = ExperimentRunner(short_variant(algorithm), tmp_path)
    progress = runner.train()
    assert progress.finished
    assert progress.version >= 200
    assert progress.evaluation is not None
    assert -2000 < progress.evaluation.mean_return < 0
    assert runner.policy is not None


def test_restored_trial_continues_exactly(tmp_path: Path) -> None:
    runner = ExperimentRunner(short_variant("SAC"), tmp_path)
    straight = runner.train()
    before_last = runner.checkpoints[-2]
    restored = ExperimentRunner.restore(before_last)
    assert restored.train().evaluation == straight.evaluation
