"""Run to train or evaluate: its directory, typed config and checkpoints."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from rl4sys.errors import RunError
from rl4sys.runs.checkpoint import CheckpointStore
from rl4sys.runs.config import ExperimentConfig, parse_experiment
from rl4sys.runs.directory import RUNNING, RunDirectory, is_run, not_a_run, split_checkpoint
from rl4sys.runs.provenance import provenance
from rl4sys.runs.query import find_run
from rl4sys.runs.store import register, root_of
from rl4sys.runs.summary import ID_LENGTH

_REGISTER_SECONDS = 10.0
"""Minimum time between updates of the run store during training. Readers of the store refresh stale entries."""


class Run:
    """Run to train or evaluate, with its config and checkpoints. The constructor accesses no file."""

    def __init__(self, path: Path, config: ExperimentConfig) -> None:
        self.path, self.config = path, config
        self.directory = RunDirectory(path)
        self.checkpoints = CheckpointStore(self.directory.checkpoints, config.training.keep_checkpoints)
        self.metrics = self.directory.metrics
        self.digests = self.directory.digests
        self.logs = self.directory.logs
        self._is_locked = False
        self._registered_at = float("-inf")

    @classmethod
    def create(cls, root: Path, config: ExperimentConfig, now: datetime) -> Run:
        """Create a run in a new directory named after the experiment and the time."""
        config = with_absolute_source(config, root)
        try:
            path = new_directory(root, f"{config.experiment.name}_{now:%Y%m%d-%H%M%S}")
        except OSError as problem:
            raise _cannot_create(root, problem) from problem
        return cls.create_at(path, config, now)

    @classmethod
    def create_at(cls, path: Path, config: ExperimentConfig, now: datetime) -> Run:
        """Create a run in the directory `path`. The config is written last, so a run with a config is complete."""
        config = with_absolute_source(config, root_of(path))
        run = cls(path, config)
        try:
            run.directory.create_folders()
            run_id = secrets.token_hex(ID_LENGTH // 2)
            origin = {"id": run_id, "seed": config.experiment.seed, **_start_record(now, config)}
            run.directory.write_provenance({**origin, "config": config.to_settings()})
            run.directory.write_config(config.to_settings())
        except OSError as problem:
            raise _cannot_create(path.parent, problem) from problem
        register(path)
        return run

    @staticmethod
    def exists(path: Path) -> bool:
        return is_run(path)

    @classmethod
    def open(cls, path: Path) -> Run:
        """Open the run in the directory `path`."""
        if not cls.exists(path):
            raise not_a_run(path)
        settings = RunDirectory(path).config().settings
        return cls(path, parse_experiment(settings, beside=path / "configs"))

    def reconfigure(self, config: ExperimentConfig) -> None:
        """Replace the config of the run, in memory and on disk."""
        self.config = config
        self.directory.write_config(config.to_settings())
        register(self.path)

    def complete_config(self, config: ExperimentConfig) -> None:
        """Replace the config on disk and in the provenance after settings such as the buffer size were chosen."""
        self.directory.write_provenance({**self.provenance(), "config": config.to_settings()})
        self.reconfigure(config)

    def note_resume(self, now: datetime, step: int) -> None:
        """Record in the provenance that the run was resumed from `step`, with time, versions and machine."""
        record = self.provenance()
        total = self.config.training.total_timesteps
        resume = {**_start_record(now, self.config), "step": step, "total_timesteps": total}
        record["resumed"] = [*record.get("resumed", []), resume]
        self.directory.write_provenance(record)

    def provenance(self) -> dict[str, Any]:
        """Return versions, machine and command of the run; empty if they were not recorded."""
        return self.directory.provenance()

    def status(self) -> dict[str, Any]:
        """Return the last status of the run; empty before the first status is written."""
        return self.directory.status()

    def discard(self) -> None:
        """Delete a run that was never trained: its directory and its entry in the run store."""
        self.directory.delete()
        register(self.path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the run. Raises `RunError` if another live process holds it. Reentrant."""
        if self._is_locked:
            yield
            return
        with self.directory.lock():
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    def facts(self) -> dict[str, Any]:
        """Return name, algorithm, environment and seed of the run."""
        config = self.config
        return {
            "name": config.experiment.name,
            "algorithm": config.algorithm.name,
            "environment": config.environment.name,
            "seed": config.experiment.seed,
        }

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Write the status with process id and time, and update the run store."""
        record = {**status, "pid": os.getpid(), "time": datetime.now().isoformat(timespec="seconds")}
        is_running = status.get("status") == RUNNING
        try:
            # While the run trains, its status is replaced with every row, so losing it in a power failure is harmless.
            self.directory.write_status(record, synced=not is_running)
        except OSError as problem:
            raise RunError(f"cannot write the status of {self.path}: {problem.strerror}") from problem
        self._register(is_running=is_running)

    def _register(self, *, is_running: bool) -> None:
        """Update the run store: always at the start and end of training, and in between at most every 10 seconds."""
        now = time.monotonic()
        if is_running and now - self._registered_at < _REGISTER_SECONDS:
            return
        first, self._registered_at = self._registered_at == float("-inf"), now
        register(self.path, wait=first or not is_running)


def _cannot_create(root: Path, problem: OSError) -> RunError:
    return RunError(f"cannot create a run directory in {root}: {problem.strerror}; choose another folder with --root")


def with_absolute_source(config: ExperimentConfig, root: Path) -> ExperimentConfig:
    """Replace the run in ``initialize_from`` by its path. Call this before a new run exists that has the same name."""
    if config.initialize_from is None:
        return config
    name, checkpoint = split_checkpoint(config.initialize_from)
    return config.model_copy(update={"initialize_from": f"{find_run(name, root).resolve()}@{checkpoint}"})


def _start_record(now: datetime, config: ExperimentConfig) -> dict[str, Any]:
    return {"started": now.isoformat(timespec="seconds"), **provenance(config.experiment.device)}


def new_directory(root: Path, name: str) -> Path:
    """Create and return the directory `name` in `root`, or `name-2`, `name-3`, … if `name` exists."""
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
