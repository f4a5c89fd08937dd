"""A server's policy learnt again from its journal."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rl4sys.errors import RunError
from rl4sys.experiment.run import Run
from rl4sys.lab.verify import verify
from rl4sys.server.config import ServerConfig
from rl4sys.server.journal import FILE, Journal
from rl4sys.server.settings import live_config
from rl4sys.server.task import VERSIONS
from rl4sys.server.worker import Worker, _build

from ..recorded import CARTPOLE, keep, record
from .test_verify import edit, flip

SERVER = ServerConfig(log_frequency=100)
SETTINGS: dict[str, Any] = {
    "algorithm": {"name": "dqn", "batch_size": 16, "learning_starts": 64, "train_frequency": 16},
    "network": {"critic": {"hidden_dims": [8]}},
    "buffer": {"size": 300},
    "seed": 5,
}


class NoPipe:
    """Nobody listens."""

    def send(self, frame: object) -> None:
        pass


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a server leaves behind that had 20 episodes, a checkpoint after every five and at the start."""
    path = tmp_path_factory.mktemp("live") / "served"
    keep(path, record(lambda state, rng: int(rng.integers(2)), 20))
    run = Run.create_at(path, live_config("served", SETTINGS, SERVER), datetime.now())
    (path / VERSIONS).mkdir()
    worker = Worker(run, _build(CARTPOLE, run), CARTPOLE, NoPipe(), SERVER)  # type: ignore[arg-type]
    journal = Journal(path / FILE, read_only=True)
    with worker._logbook.opened(0):
        worker._save()
        for row in journal.after(0, 100):
            worker._take(row)
            worker._publish()
            if row.row % 5 == 0:
                worker._save()
    journal.close()
    assert worker._learner.version > 5
    return path


@pytest.fixture
def served(learnt: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(learnt, tmp_path / "served", symlinks=True))


def forget(path: Path, rows: int) -> None:
    journal = Journal(path / FILE)
    while journal.forget(rows):
        pass
    journal.close()


def test_a_policy_follows_from_its_journal(served: Path) -> None:
    verdict = verify(Run.open(served))
    assert verdict.identical
    assert verdict.steps == verdict.of_steps > 200
    assert verdict.compared.things["checkpoint"] == 3
    assert verdict.compared.things["policy"] == len(list((served / VERSIONS).iterdir())) > 5
    assert verdict.not_compared[0].startswith("metrics")


def test_a_changed_setting_is_found_at_the_first_model_that_is_kept(served: Path) -> None:
    edit(served, "algorithm.gamma=0.5")
    verdict = verify(Run.open(served))
    assert verdict.first[0].part == "policy"
    assert verdict.agreed_until == 0
    assert "algorithm.gamma was 0.99 and is 0.5" in verdict.reasons[0]


def test_a_flipped_weight_is_found(served: Path) -> None:
    names = sorted(path.name for path in (served / "checkpoints").glob("step_*"))
    flip(served, names[1], "/learner/algorithm/critic/output.weight")
    verdict = verify(Run.open(served))
    assert [(d.step, d.elements) for d in verdict.differences] == [(int(names[1].removeprefix("step_")), 1)]
    assert "is the same again" in verdict.reasons[0]


def test_without_its_first_rows_it_is_learnt_again_from_a_checkpoint(served: Path) -> None:
    forget(served, 12)
    verdict = verify(Run.open(served))
    assert verdict.identical
    assert verdict.compared.things["checkpoint"] == 1
    assert verdict.not_compared[1] == "what was learnt up to row 15 of the journal, which is no longer held"


def test_without_any_rows_between_checkpoints_it_is_told(served: Path) -> None:
    forget(served, 20)
    with pytest.raises(RunError, match=r"no longer holds the rows between two of its checkpoints.*journal: archive"):
        verify(Run.open(served))
