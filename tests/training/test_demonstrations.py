"""Demonstrations mixed with collected experience in a `union` buffer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4sys.config import Settings
from rl4sys.errors import ConfigError
from rl4sys.runs.config import parse_experiment
from rl4sys.runs.run import Run
from rl4sys.server.config import ServerConfig
from rl4sys.server.live_config import live_config
from rl4sys.training.loop import TrainingLoop
from rl4sys.training.warm_start import load_pools

from ..recorded import CARTPOLE, PENDULUM, balance, record, write_journal
from .test_loop import CallsAtRound, fingerprint

MakeLoop = Callable[..., TrainingLoop]


def union(path: Path, **of_pool: Any) -> Settings:
    demonstrations = {"share": 0.5, "dataset": {"type": "journal", "path": str(path)}, **of_pool}
    return {"type": "union", "size": 1000, "pools": {"demonstrations": demonstrations, "own": {"share": 0.5}}}


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return write_journal(tmp_path / "journal", record(balance, 2))


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_demonstrations_are_half_of_each_batch_and_resume_is_exact(
    algorithm: str, journal: Path, make_loop: MakeLoop
) -> None:
    def stop() -> None:
        stopped.stop()

    block = f"buffer={union(journal)}"
    straight = make_loop(algorithm, block)
    straight.train()
    buffer = straight._learner._buffer
    batch = buffer._sample(np.random.default_rng(0))
    shown = np.concatenate([t.columns["obs.state"] for t in record(balance, 2)])
    rows = batch["obs.state"][batch["pool"] == 0]
    assert len(rows) == 8
    assert all((row == shown).all(-1).any() for row in rows)
    assert straight.progress().version > 3
    stopped = make_loop(algorithm, block, observer=CallsAtRound(stop, at=10))
    stopped.train()
    assert stopped.progress().steps < straight.progress().steps
    shutil.rmtree(journal)
    resumed = make_loop(algorithm, run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert fingerprint(resumed) == fingerprint(straight)


def test_dataset_with_wrong_shape_or_too_many_steps_is_rejected(journal: Path) -> None:
    def load(**of_pool: Any) -> None:
        settings = {"algorithm": {"name": "dqn"}, "environment": {"name": "x"}, "buffer": union(journal, **of_pool)}
        load_pools(parse_experiment(settings).buffer, spec)

    spec = PENDULUM
    with pytest.raises(ConfigError, match=r"the dataset has observations .*\(4,\).* policy .*\(3,\)"):
        load()
    spec = CARTPOLE
    with pytest.raises(
        ConfigError,
        match=r"demonstrations has a capacity of 999 steps, but its dataset has 1,000; increase buffer.pools.demo",
    ):
        load(buffer={"size": 999})


def test_dataset_path_from_a_client_is_rejected(journal: Path) -> None:
    settings = {"algorithm": {"name": "dqn"}, "buffer": union(journal)}
    with pytest.raises(ConfigError, match=r"clients cannot set buffer\.pools\.demonstrations\.dataset\.path"):
        live_config("cache", settings, ServerConfig())
    assert live_config("cache", settings, ServerConfig(policies={"cache": settings})).buffer.type == "union"
