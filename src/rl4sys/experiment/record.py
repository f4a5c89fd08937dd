"""What is known of a run without opening it, read from the files of its directory.

Nothing here imports a component, so that looking at runs is quick and runs nothing of theirs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from rl4sys.config import Settings, load
from rl4sys.errors import ConfigError, RunError
from rl4sys.experiment.lock import is_held
from rl4sys.experiment.outcome import REWARDS, Outcome, read_outcome

CONFIG, PROVENANCE = "configs/config.yaml", "configs/provenance.json"
STATUS, METRICS, TAGS = "status.json", "metrics.jsonl", "tags.json"

CREATED, RUNNING, INTERRUPTED = "created", "running", "interrupted"
"""A run that never began; one that a process trains; one that says so though no process does."""

ID_LENGTH = 8

TAG = r"^[\w.:/+-]{1,60}$"
"""What a tag may be: letters, digits and a few signs, so that filters and tables can hold it."""

_NOT_COUNTED = (
    "version",
    "experiment",
    "logging",
    "alerts",
    "training.checkpoint_frequency",
    "training.keep_checkpoints",
)
"""Settings that change neither what is learnt nor how it is judged: two runs may differ in them and be one config."""


Kind = TypeVar("Kind")


@dataclass(frozen=True)
class RunRecord:
    """One run; times are ISO 8601, local, as in its files."""

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
    """When something last happened to it."""
    finished: str | None
    git_hash: str | None
    config_hash: str
    """The same for runs of one config, whatever their seeds."""
    steps: int
    settings: Settings
    """As they stand in its config."""
    outcome: Outcome

    @property
    def reward(self) -> float | None:
        """The last evaluation's mean return, or, where none was made, that of the last training episodes."""
        return _first_of(self.outcome.final)

    @property
    def best_reward(self) -> float | None:
        return _first_of(self.outcome.best)


def is_run(path: Path) -> bool:
    try:
        return (path / CONFIG).is_file()
    except OSError:
        # A name too long to be one, for instance.
        return False


def not_a_run(path: Path) -> RunError:
    """What to say about a path that is none; names the runs beside it, or in it."""
    return RunError(f"{path} is not a run directory: it has no {CONFIG}{_nearby(path)}")


def _nearby(path: Path) -> str:
    for folder in (path, path.parent):
        runs = sorted(p.parent.parent.name for p in folder.glob(f"*/{CONFIG}"))
        if runs:
            return f". Runs in {folder}: {', '.join(runs[-5:])}"
    return ""


def read_record(path: Path, before: RunRecord | None = None) -> RunRecord:
    """What the directory says now; ``before`` saves reading rows again. A damaged one is a `RunError` saying where."""
    try:
        return _read(path, before.outcome if before else None)
    except (ConfigError, OSError, ValueError, TypeError) as problem:
        raise RunError(f"{path} is damaged: {problem}") from problem


def _read(path: Path, outcome: Outcome | None) -> RunRecord:
    setup, provenance, status = _setup(path / CONFIG), read_object(path / PROVENANCE), read_object(path / STATUS)
    outcome = read_outcome(path / METRICS, outcome)
    started = str(provenance.get("started") or _modified(path / CONFIG))
    said = str(status.get("status", CREATED))
    updated = str(status.get("time") or (_modified(path / STATUS) if status else started))
    return RunRecord(
        path=path,
        id=str(provenance.get("id") or _id_of_old(setup, started)),
        name=setup.name,
        tags=_tags(path / TAGS, setup.first_tags),
        algorithm=setup.algorithm,
        environment=setup.environment,
        seed=setup.seed,
        status=said,
        started=started,
        updated=updated,
        finished=None if said in (CREATED, RUNNING) else updated,
        git_hash=str(provenance["git_hash"]) if provenance.get("git_hash") else None,
        config_hash=setup.config_hash,
        steps=int(status.get("steps", outcome.step)),
        settings=setup.settings,
        outcome=outcome,
    )


def with_true_status(record: RunRecord) -> RunRecord:
    """The same, but for one that says it is running: whether some process holds it decides."""
    if record.status not in (CREATED, RUNNING):
        return record
    if is_held(record.path):
        return replace(record, status=RUNNING)
    # It may have ended, or another process may have taken it up, since its status was read.
    now = read_record(record.path, record)
    if now.status != RUNNING:
        return now
    return now if is_held(record.path) else replace(now, status=INTERRUPTED)


@dataclass(frozen=True)
class _Setup:
    """What is needed of a config."""

    name: str
    seed: int
    algorithm: str
    environment: str
    first_tags: tuple[str, ...]
    config_hash: str
    settings: Settings


def _setup(path: Path) -> _Setup:
    found = path.stat()
    return _parsed_setup(path, found.st_mtime_ns, found.st_size, found.st_ino)


@lru_cache(maxsize=4096)
def _parsed_setup(path: Path, *_stamp: int) -> _Setup:
    """YAML takes milliseconds, and a run's status changes far more often than its config."""
    settings = load(path)
    experiment, algorithm, environment = (_block(settings, name) for name in ("experiment", "algorithm", "environment"))
    return _Setup(
        name=str(experiment.get("name", "experiment")),
        seed=int(experiment.get("seed", 0)),
        algorithm=str(algorithm.get("name", "")),
        environment=str(environment.get("name", "")),
        first_tags=tuple(experiment.get("tags") or ()),
        config_hash=config_hash(settings),
        settings=settings,
    )


def _block(settings: Settings, name: str) -> Mapping[str, Any]:
    block = settings.get(name)
    if not isinstance(block, Mapping):
        raise TypeError(f"{CONFIG} has no block {name}")
    return block


def config_hash(settings: Settings) -> str:
    """A short name for all settings that count; runs that share it differ in seed, label and bookkeeping at most."""
    counted = {key: value for key, value in _dotted(settings) if counts(key)}
    return hashlib.sha256(json.dumps(counted, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _dotted(settings: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _dotted(value, f"{at}{key}.")
        else:
            yield f"{at}{key}", value


def counts(key: str) -> bool:
    """Whether a setting, by its dotted name, changes what is learnt or how it is judged."""
    return not any(key == left_out or key.startswith(f"{left_out}.") for left_out in _NOT_COUNTED)


def _id_of_old(setup: _Setup, started: str) -> str:
    """For a run made before runs had ids: the same wherever it is moved."""
    return hashlib.sha256(f"{setup.name} {setup.seed} {started}".encode()).hexdigest()[:ID_LENGTH]


def _tags(path: Path, first: tuple[str, ...]) -> tuple[str, ...]:
    """As they were last set, or as the config gave them."""
    tags = _read_json(path, list)
    return first if tags is None else tuple(str(tag).encode().decode() for tag in tags)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; one that was never written is empty."""
    return _read_json(path, dict) or {}


def _read_json(path: Path, kind: type[Kind]) -> Kind | None:
    """None if there is no such file, or, as a crash of the machine may leave it, an empty one."""
    try:
        content = path.read_bytes()
        if not content:
            return None
        found = json.loads(content)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{path.name} is not JSON: {problem}") from problem
    if not isinstance(found, kind):
        raise TypeError(f"{path.name} holds {type(found).__name__}, not {kind.__name__}")
    return found


def _modified(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime).isoformat(timespec="seconds")


def _first_of(metrics: Mapping[str, float]) -> float | None:
    return next((metrics[name] for name in REWARDS if name in metrics), None)
