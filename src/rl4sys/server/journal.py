"""The durable journal of one policy: every trajectory the server has acknowledged, in the order it took them in.

It is the learner's queue, the record that a killed server goes on from, and a data set to learn from later. One
process writes, any number may read: SQLite in WAL mode, every commit synced to disk.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rl4sys.errors import RunError
from rl4sys.experiment.index import Transaction
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
_FORGET_AT_ONCE = 256
_PATIENCE_SECONDS = 30.0


class Sender(NamedTuple):
    """One life of a client."""

    client: str
    instance: int
    """Signed, as SQLite keeps integers."""

    @classmethod
    def of(cls, client_id: str, instance: int) -> Sender:
        """From the wire, where the instance is unsigned."""
        return cls(client_id, instance - 2**64 if instance >= 2**63 else instance)


class Entry(NamedTuple):
    """A trajectory on its way to disk, as it came over the wire."""

    sender: Sender
    sequence: int
    steps: int
    message: bytes


class Row(NamedTuple):
    """A trajectory on disk."""

    row: int
    sender: Sender
    sequence: int
    steps: int
    message: bytes

    def trajectory(self) -> Trajectory:
        """The experience in it, its episode numbered so that no other client's or life's has the same number."""
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
    """The journal file of a policy; with ``read_only`` for the learner and for tools."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        try:
            # Used by one thread at a time, though not always the same one.
            self._database = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode={'ro' if read_only else 'rwc'}",
                uri=True,
                timeout=_PATIENCE_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            if not read_only:
                self._prepare()
        except sqlite3.Error as problem:
            raise RunError(f"cannot open the journal {path}: {problem}") from problem

    def append(self, entries: Sequence[Entry]) -> None:
        """All of them or, with an exception, none; on disk when this returns."""
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
        """The highest sequence of a client's life that is on disk; 0 before the first."""
        found = self._database.execute(
            "SELECT sequence FROM clients WHERE client = ? AND instance = ?", sender
        ).fetchone()
        return int(found[0]) if found else 0

    def after(self, row: int, limit: int) -> list[Row]:
        """Up to ``limit`` rows that follow ``row``, oldest first."""
        found = self._database.execute(
            "SELECT row, client, instance, sequence, steps, message FROM trajectories "
            "WHERE row > ? ORDER BY row LIMIT ?",
            (row, limit),
        )
        return [Row(number, Sender(client, instance), *rest) for number, client, instance, *rest in found]

    def trajectories(self) -> Iterator[Trajectory]:
        """All experience it still holds, oldest first, to learn from elsewhere."""
        row = 0
        while rows := self.after(row, 64):
            for found in rows:
                yield found.trajectory()
            row = rows[-1].row

    def last_row(self) -> int:
        """The number of the newest row, whether or not it is still held; 0 before the first."""
        found = self._database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'trajectories'").fetchone()
        return int(found[0]) if found else 0

    def received_steps(self) -> int:
        """Steps ever appended."""
        return int(self._database.execute("SELECT steps FROM received").fetchone()[0])

    def held_steps(self, after: int = 0) -> int:
        """Steps of the rows that follow ``after``."""
        query = "SELECT COALESCE(SUM(steps), 0) FROM trajectories WHERE row > ?"
        return int(self._database.execute(query, (after,)).fetchone()[0])

    def forget(self, up_to: int) -> bool:
        """Remove some rows up to and including ``up_to``; true if more remain. Their room is used again."""
        with Transaction(self._database):
            removed = self._database.execute(
                "DELETE FROM trajectories WHERE row IN (SELECT row FROM trajectories WHERE row <= ? LIMIT ?)",
                (up_to, _FORGET_AT_ONCE),
            )
        return removed.rowcount == _FORGET_AT_ONCE

    def close(self) -> None:
        self._database.close()

    def _prepare(self) -> None:
        self._database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.executescript(_SCHEMA)


def read_trajectories(run: str | Path) -> Iterator[Trajectory]:
    """The experience in the journal of a policy's run directory."""
    path = Path(run) / FILE
    if not path.is_file():
        raise RunError(f"{run} has no {FILE}: it is not a policy that a server trains")
    journal = Journal(path, read_only=True)
    try:
        yield from journal.trajectories()
    finally:
        journal.close()


def _episode_number(sender: Sender, episode: int) -> int:
    name = f"{sender.client}/{sender.instance}/{episode}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1
