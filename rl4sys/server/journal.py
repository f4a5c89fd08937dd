"""Durable journal of one policy: every acknowledged trajectory, in order of arrival.

The journal is the learner's queue, the state from which a killed server recovers, and a dataset. It is a SQLite
database in WAL mode with every commit synced to disk. One process writes, any number of processes may read.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rl4sys.errors import RunError
from rl4sys.runs.database import Transaction
from rl4sys.trajectory import Trajectory
from rl4sys.wire.trajectories import decode_trajectory

FILE = "journal.db"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS trajectories (
  row INTEGER PRIMARY KEY AUTOINCREMENT,
  client TEXT NOT NULL, instance INTEGER NOT NULL, sequence INTEGER NOT NULL,
  steps INTEGER NOT NULL, message BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS clients (
  client TEXT NOT NULL, instance INTEGER NOT NULL, sequence INTEGER NOT NULL,
  PRIMARY KEY (client, instance)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS received (one INTEGER PRIMARY KEY CHECK (one = 1), steps INTEGER NOT NULL);
INSERT OR IGNORE INTO received VALUES (1, 0);
"""
_PAGE_BYTES = 16384
_DELETE_BATCH = 256
_TIMEOUT_SECONDS = 30.0


class Sender(NamedTuple):
    """Identity of a client instance."""

    client: str
    instance: int
    """Random id of the instance; signed, because SQLite stores signed integers."""

    @classmethod
    def of(cls, client_id: str, instance: int) -> Sender:
        """Create a sender from the values on the wire, where the instance id is unsigned."""
        return cls(client_id, instance - 2**64 if instance >= 2**63 else instance)


class EncodedTrajectory(NamedTuple):
    """Encoded trajectory of a client, as received from the wire."""

    sender: Sender
    sequence: int
    steps: int
    message: bytes
    row: int = 0
    """Position in the journal; 0 before the trajectory is written."""

    def decode(self) -> Trajectory:
        """Decode the trajectory. Its episode number is unique across all client instances."""
        trajectory, _ = decode_trajectory(self.message)
        return Trajectory(
            trajectory.version,
            trajectory.columns,
            _episode_number(self.sender, trajectory.episode),
            trajectory.offset,
            trajectory.terminated,
            trajectory.truncated,
        )


class Journal:
    """Journal file of a policy. The learner and tools open it with ``read_only``."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        try:
            # One thread at a time uses the connection, but not always the same thread.
            self._database = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode={'ro' if read_only else 'rwc'}",
                uri=True,
                timeout=_TIMEOUT_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            if not read_only:
                self._prepare()
        except sqlite3.Error as error:
            raise RunError(f"cannot open the journal {path}: {error}") from error

    def append(self, entries: Sequence[EncodedTrajectory]) -> None:
        """Append all entries, or none if an exception is raised. The entries are on disk when this method returns."""
        rows = [(e.sender.client, e.sender.instance, e.sequence, e.steps, e.message) for e in entries]
        with Transaction(self._database):
            self._database.executemany(
                "INSERT INTO trajectories (client, instance, sequence, steps, message) VALUES (?, ?, ?, ?, ?)", rows
            )
            self._database.executemany(
                "INSERT INTO clients VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET sequence = excluded.sequence",
                [row[:3] for row in rows],
            )
            self._database.execute("UPDATE received SET steps = steps + ?", (sum(e.steps for e in entries),))

    def acknowledged(self, sender: Sender) -> int:
        """Return the highest sequence number of a client instance on disk; 0 if it has no trajectory on disk."""
        found = self._database.execute(
            "SELECT sequence FROM clients WHERE client = ? AND instance = ?", sender
        ).fetchone()
        return int(found[0]) if found else 0

    def after(self, row: int, limit: int) -> list[EncodedTrajectory]:
        """Return up to ``limit`` trajectories after position ``row``, oldest first."""
        found = self._database.execute(
            "SELECT client, instance, sequence, steps, message, row FROM trajectories "
            "WHERE row > ? ORDER BY row LIMIT ?",
            (row, limit),
        )
        return [EncodedTrajectory(Sender(client, instance), *rest) for client, instance, *rest in found]

    def trajectories(self) -> Iterator[Trajectory]:
        """Yield all stored trajectories, oldest first."""
        row = 0
        while rows := self.after(row, 64):
            for found in rows:
                yield found.decode()
            row = rows[-1].row

    def last_row(self) -> int:
        """Return the position of the newest row, even if it was deleted; 0 if no row was ever written."""
        found = self._database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'trajectories'").fetchone()
        return int(found[0]) if found else 0

    def received_steps(self) -> int:
        """Return the number of all steps appended so far, including deleted steps."""
        return int(self._database.execute("SELECT steps FROM received").fetchone()[0])

    def held_steps(self, after: int = 0) -> int:
        """Return the number of stored steps after position ``after``."""
        query = "SELECT COALESCE(SUM(steps), 0) FROM trajectories WHERE row > ?"
        return int(self._database.execute(query, (after,)).fetchone()[0])

    def delete_batch(self, up_to: int) -> bool:
        """Delete one batch of rows up to and including ``up_to``. Returns True if more rows may remain."""
        with Transaction(self._database):
            deleted = self._database.execute(
                "DELETE FROM trajectories WHERE row IN (SELECT row FROM trajectories WHERE row <= ? LIMIT ?)",
                (up_to, _DELETE_BATCH),
            )
        return deleted.rowcount == _DELETE_BATCH

    def close(self) -> None:
        self._database.close()

    def _prepare(self) -> None:
        self._database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.executescript(_SCHEMA)


def read_trajectories(run: str | Path) -> Iterator[Trajectory]:
    """Yield all trajectories in the journal of a policy's run directory. Safe while the server is running."""
    path = Path(run) / FILE
    if not path.is_file():
        raise RunError(f"{run} has no {FILE}; expected the run directory of a hosted policy")
    journal = Journal(path, read_only=True)
    try:
        yield from journal.trajectories()
    finally:
        journal.close()


def _episode_number(sender: Sender, episode: int) -> int:
    name = f"{sender.client}/{sender.instance}/{episode}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1
