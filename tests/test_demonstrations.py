"""Demonstrations beside one's own experience, named in a config."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4sys.config import Settings
from rl4sys.errors import ConfigError
from rl4sys.experiment.config import parse_experiment
from rl4sys.experiment.recorded import load_pools
from rl4sys.experiment.run import Run
from rl4sys.server.config import ServerConfig
from rl4sys.server.settings import live_config
from rl4sys.trainer import Trainer

from .recorded import CARTPOLE, PENDULUM, balance, keep, record
from .test_trainer import Calls, fingerprint

MakeTrainer = Callable[..., Trainer]


def union(path: Path, **of_pool: Any) -> Settings:
    demonstrations = {"share": 0.5, "dataset": {"type": "journal", "path": str(path)}, **of_pool}
    return {"type": "union", "size": 1000, "pools": {"demonstrations": demonstrations, "own": {"share": 0.5}}}


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return keep(tmp_path / "journal", record(balance, 2))


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_half_of_every_batch_is_demonstrations_and_a_resumed_run_holds_them_itself(
    algorithm: str, journal: Path, make_trainer: MakeTrainer
) -> None:
    def stop() -> None:
        stopped.stop()

    block = f"buffer={union(journal)}"
    straight = make_trainer(algorithm, block)
    straight.train()
    buffer = straight._learner._buffer
    batch = buffer._sample(np.random.default_rng(0))
    shown = np.concatenate([t.columns["obs.state"] for t in record(balance, 2)])
    rows = batch["obs.state"][batch["pool"] == 0]
    assert len(rows) == 8
    assert all((row == shown).all(-1).any() for row in rows)
    assert straight.progress().version > 3
    stopped = make_trainer(algorithm, block, observer=Calls(stop, at=10))
    stopped.train()
    assert stopped.progress().steps < straight.progress().steps
    shutil.rmtree(journal)
    resumed = make_trainer(algorithm, run=Run.open(stopped._run.path))
    resumed.resume()
    resumed.train()
    assert fingerprint(resumed) == fingerprint(straight)


def test_demonstrations_of_something_else_or_too_many_are_refused(journal: Path) -> None:
    def load(**of_pool: Any) -> None:
        settings = {"algorithm": {"name": "dqn"}, "environment": {"name": "x"}, "buffer": union(journal, **of_pool)}
        load_pools(parse_experiment(settings).buffer, spec)

    spec = PENDULUM
    with pytest.raises(ConfigError, match=r"the data set has observations .*\(4,\).* policy that is to learn .*\(3,\)"):
        load()
    spec = CARTPOLE
    with pytest.raises(
        ConfigError, match=r"demonstrations holds 999 steps, and its data set has 1,000; raise its buff"
    ):
        load(buffer={"size": 999})


def test_a_client_cannot_name_files_of_the_server(journal: Path) -> None:
    settings = {"algorithm": {"name": "dqn"}, "buffer": union(journal)}
    with pytest.raises(ConfigError, match=r"buffer\.pools\.demonstrations\.dataset\.path is for files of the server"):
        live_config("cache", settings, ServerConfig())
    assert live_config("cache", settings, ServerConfig(policies={"cache": settings})).buffer.type == "union"
