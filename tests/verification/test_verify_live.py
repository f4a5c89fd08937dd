"""Verification of hosted policies from their journals."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rl4sys.errors import RunError
from rl4sys.runs.directory import VERSIONS
from rl4sys.runs.run import Run
from rl4sys.server.config import ServerConfig
from rl4sys.server.journal import FILE, Journal
from rl4sys.server.journal_learner import JournalLearner
from rl4sys.server.live_config import live_config
from rl4sys.server.policy_directory import build_policy_learner
from rl4sys.server.publisher import Publisher
from rl4sys.verification.verify import verify

from ..recorded import CARTPOLE, record, write_journal
from .test_verify import edit, flip_bit

SERVER = ServerConfig(log_frequency=100)
SETTINGS: dict[str, Any] = {
    "algorithm": {"name": "dqn", "batch_size": 16, "learning_starts": 64, "train_frequency": 16},
    "network": {"critic": {"hidden_dims": [8]}},
    "buffer": {"size": 300},
    "seed": 5,
}


class NoPipe:
    """Pipe that discards all messages."""

    def send(self, frame: object) -> None:
        pass


@pytest.fixture(scope="module")
def trained_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run directory of a server policy after 20 episodes, with a checkpoint at the start and after every 5 episodes."""
    path = tmp_path_factory.mktemp("live") / "served"
    write_journal(path, record(lambda state, rng: int(rng.integers(2)), 20))
    run = Run.create_at(path, live_config("served", SETTINGS, SERVER), datetime.now())
    (path / VERSIONS).mkdir()
    trained = JournalLearner(run, build_policy_learner(CARTPOLE, run), CARTPOLE, SERVER, pytest.fail)
    publisher = Publisher(trained, path, NoPipe(), SERVER.keep_versions)  # type: ignore[arg-type]
    journal = Journal(path / FILE, read_only=True)
    with trained._logbook.opened(0):
        trained.save()
        for row in journal.after(0, 100):
            trained.learn(row)
            publisher.publish()
            if row.row % 5 == 0:
                trained.save()
    journal.close()
    assert trained.learner.version > 5
    return path


@pytest.fixture
def served(trained_policy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained_policy, tmp_path / "served", symlinks=True))


def delete_rows(path: Path, rows: int) -> None:
    journal = Journal(path / FILE)
    while journal.delete_batch(rows):
        pass
    journal.close()


def test_policy_is_reproduced_from_its_journal(served: Path) -> None:
    report = verify(Run.open(served))
    assert report.identical
    assert report.steps == report.of_steps > 200
    assert report.compared.records["checkpoint"] == 3
    assert report.compared.records["policy"] == len(list((served / VERSIONS).iterdir())) > 5
    assert report.not_compared[0].startswith("metrics")


def test_changed_setting_is_detected_at_first_stored_model(served: Path) -> None:
    edit(served, "algorithm.gamma=0.5")
    report = verify(Run.open(served))
    assert report.first[0].part == "policy"
    assert report.agreed_until == 0
    assert "algorithm.gamma was 0.99 and is 0.5" in report.reasons[0]


def test_flipped_bit_is_detected_in_its_checkpoint(served: Path) -> None:
    names = sorted(path.name for path in (served / "checkpoints").glob("step_*"))
    flip_bit(served, names[1], "/learner/algorithm/critic/output.weight")
    report = verify(Run.open(served))
    assert [(d.step, d.elements) for d in report.differences] == [(int(names[1].removeprefix("step_")), 1)]
    assert "is identical" in report.reasons[0]


def test_replay_starts_at_checkpoint_if_first_rows_are_deleted(served: Path) -> None:
    delete_rows(served, 12)
    report = verify(Run.open(served))
    assert report.identical
    assert report.compared.records["checkpoint"] == 1
    assert report.not_compared[1] == "rows up to 15 of the journal, which are no longer stored"


def test_missing_rows_between_checkpoints_are_reported(served: Path) -> None:
    delete_rows(served, 20)
    with pytest.raises(RunError, match=r"no longer contains the rows between two of its checkpoints.*journal: archive"):
        verify(Run.open(served))
