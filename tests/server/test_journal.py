"""Journal: durable and atomic appends, and concurrent readers."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from rl4sys.errors import RunError
from rl4sys.server.journal import EncodedTrajectory, Journal, Sender, read_trajectories
from rl4sys.trajectory import Trajectory
from rl4sys.wire.trajectories import encode_trajectory

A, B = Sender("a", 1), Sender("b", -5)


def entry(sender: Sender, sequence: int, steps: int = 3, episode: int = 0) -> EncodedTrajectory:
    columns = {
        "obs.state": np.full((steps + 1, 2), sequence, np.float32),
        "action": np.zeros(steps, np.int64),
        "reward": np.full(steps, sequence, np.float32),
        "log_prob": np.zeros(steps, np.float32),
    }
    return EncodedTrajectory(sender, sequence, steps, encode_trajectory(Trajectory(0, columns, episode), sequence))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.db")


def test_reader_sees_appended_rows_in_order(journal: Journal) -> None:
    journal.append([entry(A, 1), entry(B, 1)])
    journal.append([entry(A, 2)])
    reader = Journal(journal.path, read_only=True)
    rows = reader.after(0, 10)
    assert [(row.row, row.sender, row.sequence) for row in rows] == [(1, A, 1), (2, B, 1), (3, A, 2)]
    assert [row.row for row in reader.after(1, 1)] == [2]
    assert reader.last_row() == 3
    assert reader.received_steps() == 9
    assert reader.held_steps(after=1) == 6


def test_acknowledged_sequences_are_kept_after_reopening_and_row_deletion(journal: Journal) -> None:
    journal.append([entry(A, 1), entry(A, 4), entry(B, 2)])
    journal.delete_batch(3)
    journal.close()
    reopened = Journal(journal.path)
    assert (reopened.acknowledged(A), reopened.acknowledged(B), reopened.acknowledged(Sender("a", 2))) == (4, 2, 0)
    assert reopened.after(0, 10) == []
    reopened.append([entry(A, 5)])
    assert [row.row for row in reopened.after(0, 10)] == [4], "row numbers are not reused"


def test_failed_append_writes_no_trajectory(journal: Journal) -> None:
    journal.append([entry(A, 1)])
    with pytest.raises(sqlite3.Error):
        journal.append([entry(A, 2), EncodedTrajectory(A, 3, 1, None)])  # type: ignore[arg-type]
    assert [row.sequence for row in journal.after(0, 10)] == [1]
    assert journal.acknowledged(A) == 1
    journal.append([entry(A, 2)])
    assert journal.acknowledged(A) == 2


def test_full_disk_loses_no_acknowledged_trajectory(journal: Journal) -> None:
    journal.append([entry(A, 1)])
    pages = journal._database.execute("PRAGMA page_count").fetchone()[0]
    journal._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        journal.append([entry(A, 2, steps=10_000)])
    journal._database.execute("PRAGMA max_page_count = 1000000")
    journal.append([entry(A, 2, steps=10_000)])
    assert [row.sequence for row in journal.after(0, 10)] == [1, 2]


def test_rows_are_deleted_in_batches(journal: Journal) -> None:
    journal.append([entry(A, n) for n in range(1, 601)])
    assert journal.delete_batch(590)
    while journal.delete_batch(590):
        pass
    assert [row.row for row in journal.after(0, 100)] == list(range(591, 601))


def test_episode_numbers_are_unique_across_client_instances(journal: Journal) -> None:
    senders = (A, B, Sender("a", 2))
    journal.append([entry(sender, 1, episode=e) for sender in senders for e in (0, 1)])
    numbers = [row.decode().episode for row in journal.after(0, 10)]
    assert len(set(numbers)) == 6
    assert all(0 <= number < 2**63 for number in numbers)


def test_journal_can_be_read_as_dataset(tmp_path: Path, journal: Journal) -> None:
    journal.append([entry(A, n) for n in range(1, 100)])
    rewards = [trajectory.columns["reward"][0] for trajectory in read_trajectories(tmp_path)]
    assert rewards == list(range(1, 100))
    with pytest.raises(RunError, match="expected the run directory of a hosted policy"):
        next(read_trajectories(tmp_path / "elsewhere"))
