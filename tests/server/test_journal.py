"""The journal: on disk when it says so, whole or not at all, and readable by others."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from rl4sys.errors import RunError
from rl4sys.server.journal import Entry, Journal, Sender, read_trajectories
from rl4sys.trajectory import Trajectory
from rl4sys.wire.trajectories import encode_trajectory

A, B = Sender("a", 1), Sender("b", -5)


def entry(sender: Sender, sequence: int, steps: int = 3, episode: int = 0) -> Entry:
    columns = {
        "obs.state": np.full((steps + 1, 2), sequence, np.float32),
        "action": np.zeros(steps, np.int64),
        "reward": np.full(steps, sequence, np.float32),
        "log_prob": np.zeros(steps, np.float32),
    }
    return Entry(sender, sequence, steps, encode_trajectory(Trajectory(0, columns, episode), sequence))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.db")


def test_another_process_reads_what_was_appended_in_order(journal: Journal) -> None:
    journal.append([entry(A, 1), entry(B, 1)])
    journal.append([entry(A, 2)])
    reader = Journal(journal.path, read_only=True)
    rows = reader.after(0, 10)
    assert [(row.row, row.sender, row.sequence) for row in rows] == [(1, A, 1), (2, B, 1), (3, A, 2)]
    assert [row.row for row in reader.after(1, 1)] == [2]
    assert reader.last_row() == 3
    assert reader.received_steps() == 9
    assert reader.held_steps(after=1) == 6


def test_what_is_on_disk_of_each_life_of_a_client_survives_reopening_and_forgetting(journal: Journal) -> None:
    journal.append([entry(A, 1), entry(A, 4), entry(B, 2)])
    journal.forget(3)
    journal.close()
    again = Journal(journal.path)
    assert (again.acknowledged(A), again.acknowledged(B), again.acknowledged(Sender("a", 2))) == (4, 2, 0)
    assert again.after(0, 10) == []
    again.append([entry(A, 5)])
    assert [row.row for row in again.after(0, 10)] == [4], "numbers of forgotten rows are not used again"


def test_a_failed_append_leaves_nothing(journal: Journal) -> None:
    journal.append([entry(A, 1)])
    with pytest.raises(sqlite3.Error):
        journal.append([entry(A, 2), Entry(A, 3, 1, None)])  # type: ignore[arg-type]
    assert [row.sequence for row in journal.after(0, 10)] == [1]
    assert journal.acknowledged(A) == 1
    journal.append([entry(A, 2)])
    assert journal.acknowledged(A) == 2


def test_a_full_disk_loses_nothing_that_was_acknowledged(journal: Journal) -> None:
    journal.append([entry(A, 1)])
    pages = journal._database.execute("PRAGMA page_count").fetchone()[0]
    journal._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        journal.append([entry(A, 2, steps=10_000)])
    journal._database.execute("PRAGMA max_page_count = 1000000")
    journal.append([entry(A, 2, steps=10_000)])
    assert [row.sequence for row in journal.after(0, 10)] == [1, 2]


def test_forgetting_goes_in_pieces_and_makes_room(journal: Journal) -> None:
    journal.append([entry(A, n) for n in range(1, 601)])
    assert journal.forget(590)
    while journal.forget(590):
        pass
    assert [row.row for row in journal.after(0, 100)] == list(range(591, 601))


def test_episodes_of_different_clients_and_lives_are_told_apart(journal: Journal) -> None:
    senders = (A, B, Sender("a", 2))
    journal.append([entry(sender, 1, episode=e) for sender in senders for e in (0, 1)])
    numbers = [row.trajectory().episode for row in journal.after(0, 10)]
    assert len(set(numbers)) == 6
    assert all(0 <= number < 2**63 for number in numbers)


def test_a_journal_is_a_data_set(tmp_path: Path, journal: Journal) -> None:
    journal.append([entry(A, n) for n in range(1, 100)])
    rewards = [trajectory.columns["reward"][0] for trajectory in read_trajectories(tmp_path)]
    assert rewards == list(range(1, 100))
    with pytest.raises(RunError, match="not a policy that a server trains"):
        next(read_trajectories(tmp_path / "elsewhere"))
