"""One run, one directory::

<name>_<timestamp>/
  configs/config.yaml      the config with every setting spelt out
  configs/provenance.json  versions, machine, git hash, command
  checkpoints/             step_…/, latest, best
  logs/                    TensorBoard event files, Weights & Biases
  videos/
  metrics.jsonl            one JSON object per row; the same for two runs of one config and seed
  digests.jsonl            beside each row of means, a checksum of all experience so far
  status.json              running, completed, stopped or failed; how far; how fast
  tags.json                labels, once they were changed from those in the config
  alerts.jsonl             what the rules of `alerts` had to tell, if anything

The root it lies in has an index of all runs (`experiment.store`), which is told of every change.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from rl4sys import config
from rl4sys.errors import RunError
from rl4sys.experiment.checkpoint import CheckpointStore
from rl4sys.experiment.config import ExperimentConfig, parse_experiment
from rl4sys.experiment.files import replace_file, write_synced
from rl4sys.experiment.lock import hold
from rl4sys.experiment.provenance import provenance
from rl4sys.experiment.record import CONFIG, ID_LENGTH, METRICS, PROVENANCE, RUNNING, STATUS, is_run, not_a_run
from rl4sys.experiment.store import register

_FOLDERS = ("checkpoints", "logs", "videos", "configs")
_REGISTER_SECONDS = 10.0
"""Between two entries of a run that goes on: who reads the index looks at the directory anyway."""


class Run:
    """The directory of a run; making one of these touches nothing."""

    def __init__(self, path: Path, config: ExperimentConfig) -> None:
        self.path, self.config = path, config
        self.checkpoints = CheckpointStore(path / "checkpoints", config.training.keep_checkpoints)
        self.metrics = path / METRICS
        self.digests = path / "digests.jsonl"
        self.logs = path / "logs"
        self._held = False
        self._registered_at = float("-inf")

    @classmethod
    def create(cls, root: Path, config: ExperimentConfig, now: datetime) -> Run:
        """A new directory, named by experiment and time, with its folders, config and provenance."""
        try:
            path = new_directory(root, f"{config.experiment.name}_{now:%Y%m%d-%H%M%S}")
        except OSError as problem:
            raise _cannot_create(root, problem) from problem
        return cls.create_at(path, config, now)

    @classmethod
    def create_at(cls, path: Path, config: ExperimentConfig, now: datetime) -> Run:
        """A run in just this directory. Its config is written last, so one with a config is whole."""
        run = cls(path, config)
        try:
            for folder in _FOLDERS:
                (path / folder).mkdir(parents=True, exist_ok=True)
            record = {"id": secrets.token_hex(ID_LENGTH // 2), "seed": config.experiment.seed, **_life(now, config)}
            record["config"] = config.to_settings()
            write_synced(path / PROVENANCE, json.dumps(record, indent=1).encode())
            run._write_config()
        except OSError as problem:
            raise _cannot_create(path.parent, problem) from problem
        register(path)
        return run

    @staticmethod
    def exists(path: Path) -> bool:
        return is_run(path)

    @classmethod
    def open(cls, path: Path) -> Run:
        """An existing run, by its directory."""
        if not cls.exists(path):
            raise not_a_run(path)
        return cls(path, parse_experiment(config.load(path / CONFIG), beside=path / "configs"))

    def reconfigure(self, config: ExperimentConfig) -> None:
        """Go on under changed settings, which are stored."""
        self.config = config
        self._write_config()
        register(self.path)

    def note_resume(self, now: datetime, step: int) -> None:
        """Add to the provenance with what, when, and from which step the run was taken up again."""
        record = self.provenance()
        life = {**_life(now, self.config), "step": step, "total_timesteps": self.config.training.total_timesteps}
        record["resumed"] = [*record.get("resumed", []), life]
        replace_file(self.path / PROVENANCE, json.dumps(record, indent=1).encode())

    def provenance(self) -> dict[str, Any]:
        """What the run was made with; empty where that is not known."""
        return _read_json(self.path / PROVENANCE)

    def status(self) -> dict[str, Any]:
        """What the run last said of itself; empty if it never did."""
        return _read_json(self.path / STATUS)

    def discard(self) -> None:
        """Remove a directory in which nothing was ever trained."""
        shutil.rmtree(self.path, ignore_errors=True)
        register(self.path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for this process; another that wants it is refused, and a dead one holds nothing.

        Whoever holds it already goes on holding it.
        """
        if self._held:
            yield
            return
        with hold(self.path):
            self._held = True
            try:
                yield
            finally:
                self._held = False

    def facts(self) -> dict[str, Any]:
        """What it is a run of, in a few words."""
        config = self.config
        return {
            "name": config.experiment.name,
            "algorithm": config.algorithm.name,
            "environment": config.environment.name,
            "seed": config.experiment.seed,
        }

    def write_status(self, status: Mapping[str, Any]) -> None:
        record = {**status, "pid": os.getpid(), "time": datetime.now().isoformat(timespec="seconds")}
        going_on = status.get("status") == RUNNING
        try:
            # Written with every row, and of no use after a crash of the machine: the disk is not waited for.
            replace_file(self.path / STATUS, json.dumps(record, indent=1).encode(), synced=not going_on)
        except OSError as problem:
            raise RunError(f"cannot write the status of {self.path}: {problem.strerror}") from problem
        self._register(going_on=going_on)

    def _register(self, *, going_on: bool) -> None:
        """Every end is registered; on the way there, now and then, and only if nobody else writes at that moment."""
        now = time.monotonic()
        if going_on and now - self._registered_at < _REGISTER_SECONDS:
            return
        first, self._registered_at = self._registered_at == float("-inf"), now
        register(self.path, wait=first or not going_on)

    def _write_config(self) -> None:
        replace_file(self.path / CONFIG, config.to_yaml(self.config.to_settings()).encode())


def _cannot_create(root: Path, problem: OSError) -> RunError:
    return RunError(f"cannot create a run directory in {root}: {problem.strerror}; choose another place with --root")


def _life(now: datetime, config: ExperimentConfig) -> dict[str, Any]:
    return {"started": now.isoformat(timespec="seconds"), **provenance(config.experiment.device)}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    except ValueError as problem:
        raise RunError(f"{path} is damaged: {problem}; remove it to do without what it says") from problem
    return record


def new_directory(root: Path, name: str) -> Path:
    """``name``, or ``name-2``, … where that exists already."""
    root.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = root / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path
