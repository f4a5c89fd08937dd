"""Summary of a run for the run store, `rl4sys list` and `rl4sys show`. Imports no registered components."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl4sys.config import Settings
from rl4sys.errors import RunError
from rl4sys.metric_names import RETURN_METRICS
from rl4sys.runs.directory import (
    CONFIG,
    CREATED,
    DEBUG_TAG,
    INTERRUPTED,
    RUNNING,
    STATUS,
    RunDirectory,
    modified_at,
    reported_state,
)
from rl4sys.runs.outcome import Outcome

ID_LENGTH = 8


@dataclass(frozen=True)
class RunSummary:
    """Properties of one run, as shown in lists of runs. Times are local ISO 8601."""

    path: Path
    id: str
    name: str
    tags: tuple[str, ...]
    algorithm: str
    environment: str
    seed: int
    status: str
    started: str
    updated: str
    """Time of the last status update, or the start time if there is no status."""
    finished: str | None
    git_hash: str | None
    config_hash: str
    """Hash of the settings that affect training, without seed and name."""
    steps: int
    settings: Settings
    """Settings from the config file of the run."""
    outcome: Outcome

    @property
    def is_debug(self) -> bool:
        """True if the run has the tag that `train --debug` sets."""
        return DEBUG_TAG in self.tags

    @property
    def reward(self) -> float | None:
        """Mean return of the last evaluation, or of recent training episodes if there was no evaluation."""
        return _first_return(self.outcome.final)

    @property
    def best_reward(self) -> float | None:
        return _first_return(self.outcome.best)


def read_summary(path: Path, before: RunSummary | None = None) -> RunSummary:
    """Read the summary of a run directory. Reads only metrics rows added since `before`.

    Raises `RunError` if a file is corrupt.
    """
    try:
        return _read(RunDirectory(path), before.outcome if before else None)
    except (OSError, ValueError, TypeError) as problem:
        raise RunError(f"{path} is damaged: {problem}") from problem


def _read(run: RunDirectory, before: Outcome | None) -> RunSummary:
    config, provenance, status, outcome = run.config(), run.provenance(), run.status(), run.outcome(before)
    experiment, algorithm, environment = (_block(config.settings, name) for name in _BLOCKS)
    name, seed = str(experiment.get("name", "experiment")), int(experiment.get("seed", 0))
    started = str(provenance.get("started") or modified_at(run.path / CONFIG))
    state = reported_state(status)
    updated = str(status.get("time") or (modified_at(run.path / STATUS) if status else started))
    tags = run.tags()
    return RunSummary(
        path=run.path,
        id=str(provenance.get("id") or _derived_id(name, seed, started)),
        name=name,
        tags=tuple(experiment.get("tags") or ()) if tags is None else tags,
        algorithm=str(algorithm.get("name", "")),
        environment=str(environment.get("name", "")),
        seed=seed,
        status=state,
        started=started,
        updated=updated,
        finished=None if state in (CREATED, RUNNING) else updated,
        git_hash=str(provenance["git_hash"]) if provenance.get("git_hash") else None,
        config_hash=config.hash,
        steps=int(status.get("steps", outcome.step)),
        settings=config.settings,
        outcome=outcome,
    )


def with_current_status(summary: RunSummary) -> RunSummary:
    """Return the summary with the status corrected by the lock: a running run without a lock was interrupted."""
    if summary.status not in (CREATED, RUNNING):
        return summary
    run = RunDirectory(summary.path)
    if run.is_locked():
        return replace(summary, status=RUNNING)
    # The run may have ended, or another process may have resumed it, since its status was read.
    current = read_summary(summary.path, summary)
    if current.status != RUNNING:
        return current
    return current if run.is_locked() else replace(current, status=INTERRUPTED)


_BLOCKS = ("experiment", "algorithm", "environment")


def _block(settings: Settings, name: str) -> Mapping[str, Any]:
    block = settings.get(name)
    if not isinstance(block, Mapping):
        raise TypeError(f"{CONFIG} has no block {name}")
    return block


def _derived_id(name: str, seed: int, started: str) -> str:
    """Return an id for an old run without a stored id. The id does not depend on the location of the run."""
    return hashlib.sha256(f"{name} {seed} {started}".encode()).hexdigest()[:ID_LENGTH]


def _first_return(metrics: Mapping[str, float]) -> float | None:
    return next((metrics[name] for name in RETURN_METRICS if name in metrics), None)
