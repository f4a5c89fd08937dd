"""Files of a run directory: their names, and one reader and one writer for each.

<name>_<timestamp>/
  configs/config.yaml      complete config, including defaults
  configs/provenance.json  package versions, machine, git hash, command, resumes
  configs/live.json        only for a hosted policy: spec, learner settings as given, lineage
  checkpoints/             step_…/, latest, best (see `CheckpointStore`)
  logs/                    TensorBoard event files, Weights & Biases, MLflow, debugging
  videos/
  versions/                only for a hosted policy: its newest models, one file per version
  metrics.jsonl            one JSON object per row; identical for two runs of the same config and seed
  digests.jsonl            checksum of all experience so far, one per metrics row of means
  status.json              running, completed, stopped or failed; steps; speed
  tags.json                tags, if they were changed after the start
  alerts.jsonl             fired and cleared alerts, if there are any (written by `AlertLog`)

This module loads neither torch nor components, so commands that only read runs start fast. `runs.run.Run` owns a run
and adds its typed config and checkpoints; `RunSummary`, `RunProgress` and the analysis are views of a `RunDirectory`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from rl4sys.alerts.log import FILE as ALERTS
from rl4sys.alerts.log import read_alerts
from rl4sys.config import Settings, inherited, merged, read, to_yaml
from rl4sys.errors import ConfigError, RunError
from rl4sys.runs.files import replace_file, size_on_disk
from rl4sys.runs.lock import directory_lock, is_locked
from rl4sys.runs.metrics import (
    AppendedRows,
    MetricsFile,
    MetricsTail,
    metric_values,
    read_metrics,
    read_valid_rows,
    thin_metrics,
)
from rl4sys.runs.outcome import Outcome, read_outcome

CONFIG, PROVENANCE, LIVE_CONFIG = "configs/config.yaml", "configs/provenance.json", "configs/live.json"
STATUS, METRICS, DIGESTS, TAGS = "status.json", "metrics.jsonl", "digests.jsonl", "tags.json"
CHECKPOINTS, LOGS, VIDEOS, VERSIONS = "checkpoints", "logs", "videos", "versions"
_LARGE = (CHECKPOINTS, LOGS, VIDEOS)
_INDEXED = (CONFIG, PROVENANCE, STATUS, TAGS, METRICS)
_MAX_DEPTH = 3
"""Maximum number of levels below a root that are searched for runs. Runs may be in subdirectories, as in sweeps."""

CREATED, RUNNING, INTERRUPTED = "created", "running", "interrupted"
"""States of a run. An interrupted run was killed: the status is still running, but no process holds the lock."""

_UNHASHED = (
    "version",
    "experiment",
    "logging",
    "alerts",
    "training.checkpoint_frequency",
    "training.keep_checkpoints",
)
"""Settings that affect neither training nor evaluation, so the config hash ignores them."""

DEBUG_TAG = "debug"
"""Tag of runs of `train --debug`. Rankings, comparisons and cleanup do not count debug runs as results."""

TAG_PATTERN = r"^[\w.:/+-]{1,60}$"
"""Regular expression of a valid tag: at most 60 characters that filters and tables support."""

Json = TypeVar("Json")


@dataclass(frozen=True)
class StoredConfig:
    """Settings from the config file of a run, not parsed into an `ExperimentConfig`."""

    settings: Settings
    hash: str
    """Hash of the settings that affect training, without seed and name."""


class RunDirectory:
    """Reader and writer of the files of one run. The constructor accesses no file.

    Readers return an empty value for a missing file and raise `RunError` for a corrupt one. Readers named
    ``…_or_empty`` return an empty value for a corrupt file as well. Writers replace files atomically and do not
    update the run store.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = path / METRICS
        self.digests = path / DIGESTS
        self.logs = path / LOGS
        self.videos = path / VIDEOS
        self.checkpoints = path / CHECKPOINTS

    @property
    def exists(self) -> bool:
        return is_run(self.path)

    @property
    def is_live(self) -> bool:
        """True if the run is a hosted policy of a server."""
        return (self.path / LIVE_CONFIG).is_file()

    @property
    def was_trained(self) -> bool:
        """True if the directory has a status or metrics file, even without a config."""
        return any((self.path / name).is_file() for name in (STATUS, METRICS))

    def create_folders(self) -> None:
        for folder in ("configs", *_LARGE):
            (self.path / folder).mkdir(parents=True, exist_ok=True)

    def delete(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def config(self) -> StoredConfig:
        """Read the config file. The parsed content is cached until the file changes."""
        path = self.path / CONFIG
        try:
            return _read_config(path, *file_stamp(path))
        except (ConfigError, OSError, ValueError, TypeError) as problem:
            raise self._corrupt(problem) from problem

    def config_or_empty(self) -> StoredConfig:
        try:
            return self.config()
        except RunError:
            return StoredConfig({}, "")

    def provenance(self) -> dict[str, Any]:
        return self._read(PROVENANCE, dict) or {}

    def provenance_or_empty(self) -> dict[str, Any]:
        return self._or_empty(PROVENANCE)

    def live_config(self) -> dict[str, Any]:
        """Return spec, learner settings and lineage of a hosted policy; empty for a local run."""
        return self._read(LIVE_CONFIG, dict) or {}

    def versions(self) -> dict[int, Path]:
        """Return the stored models of a hosted policy by version, oldest first; empty for a local run."""
        return {int(path.stem): path for path in sorted((self.path / VERSIONS).glob("[!.]*.safetensors"))}

    def status(self) -> dict[str, Any]:
        return self._read(STATUS, dict) or {}

    def status_or_empty(self) -> dict[str, Any]:
        return self._or_empty(STATUS)

    def tags(self) -> tuple[str, ...] | None:
        """Return the tags from tags.json, or None if the tags from the config were never changed."""
        tags = self._read(TAGS, list)
        try:
            return None if tags is None else tuple(str(tag).encode().decode() for tag in tags)
        except UnicodeError as problem:
            raise self._corrupt(problem) from problem

    def is_debug(self) -> bool:
        """Return True if the run has the tag of debug runs. If tags.json is corrupt, use the tags of the config."""
        experiment = self.config_or_empty().settings.get("experiment")
        try:
            tags = self.tags()
        except RunError:
            tags = None
        given = experiment.get("tags") if isinstance(experiment, Mapping) else None
        return DEBUG_TAG in ((given or ()) if tags is None else tags)

    def state(self, status: Mapping[str, Any]) -> str:
        """Return the state of the run: the state in the newly read `status`, corrected if the lock contradicts it."""
        reported = reported_state(status)
        if reported not in (CREATED, RUNNING):
            return reported
        if self.is_locked():
            return RUNNING
        # The run may have ended, or another process may have resumed it, since the status was read.
        reported = reported_state(self.status_or_empty() or status)
        return INTERRUPTED if reported == RUNNING and not self.is_locked() else reported

    def is_locked(self) -> bool:
        return is_locked(self.path)

    def lock(self) -> AbstractContextManager[None]:
        """Hold the lock of the run. Raises `RunError` if another live process holds it."""
        return directory_lock(self.path)

    def metric_rows(self) -> list[dict[str, Any]]:
        """Read all metrics rows. Raises ValueError for a corrupt row."""
        return read_metrics(self.metrics)

    def valid_metric_rows(self, metric: str | None = None) -> list[dict[str, Any]]:
        """Read the metrics rows, or only those with `metric`. Skips corrupt rows and rows without a step."""
        return read_valid_rows(self.metrics, metric)

    def digest_rows(self) -> list[dict[str, Any]]:
        return read_metrics(self.digests)

    def appended_metrics(self) -> AppendedRows:
        """Return a reader for metrics rows appended during training."""
        return AppendedRows(self.metrics)

    def appended_digests(self) -> AppendedRows:
        """Return a reader for digest rows appended during training."""
        return AppendedRows(self.digests)

    def metric_values(self, name: str) -> list[float]:
        """Return all values of one metric in file order; NaN for values that are not numbers."""
        return metric_values(self.metrics, name)

    def metrics_tail(self) -> MetricsTail:
        """Return a reader that follows the metrics file as it grows."""
        return MetricsTail(self.metrics)

    def outcome(self, before: Outcome | None = None) -> Outcome:
        """Return last and best values of the metrics file. Reads only rows that were added since `before`."""
        try:
            return read_outcome(self.metrics, before)
        except (OSError, ValueError, TypeError) as problem:
            raise self._corrupt(problem) from problem

    def alerts(self) -> list[dict[str, Any]]:
        return read_alerts(self.path / ALERTS)

    def failure_checkpoints(self) -> list[str]:
        """Return the names of checkpoints that were saved when training failed, sorted."""
        return sorted(path.name for path in self.checkpoints.glob("failed_*"))

    def stamps(self) -> list[tuple[int, int, int] | None]:
        """Return the `file_stamp` of each file that a `RunSummary` is read from, or None for a missing file."""
        return [_stamp_or_none(self.path / name) for name in _INDEXED]

    def large_files_bytes(self) -> int:
        """Return the size of checkpoints, logs and videos on disk."""
        return sum(size_on_disk(self.path / name) for name in _LARGE)

    def modified(self, name: str) -> float | None:
        """Return the modification time of a file in Unix seconds, or None if it does not exist."""
        try:
            return (self.path / name).stat().st_mtime
        except OSError:
            return None

    def write_config(self, settings: Settings) -> None:
        replace_file(self.path / CONFIG, to_yaml(settings).encode())

    def write_live_config(self, live: Mapping[str, Any]) -> None:
        self._write(LIVE_CONFIG, live)

    def write_provenance(self, provenance: Mapping[str, Any]) -> None:
        self._write(PROVENANCE, provenance)

    def write_status(self, status: Mapping[str, Any], *, synced: bool = True) -> None:
        self._write(STATUS, status, synced=synced)

    def update_status(self, **changes: Any) -> None:
        """Change some fields of the status and keep the others."""
        self.write_status({**self.status(), **changes})

    def write_tags(self, tags: Sequence[str]) -> None:
        self._write(TAGS, tags, indent=None)

    def open_metrics(self, size: int) -> MetricsFile:
        """Open the metrics file for appending, truncated to `size` bytes."""
        return MetricsFile(self.metrics, size)

    def open_digests(self, size: int) -> MetricsFile:
        """Open the digests file for appending, truncated to `size` bytes."""
        return MetricsFile(self.digests, size)

    def thin_metrics(self, max_rows: int) -> None:
        """Reduce the metrics file to about `max_rows` rows, plus the rows with last and best values."""
        thin_metrics(self.metrics, max_rows)

    def delete_large_files(self) -> None:
        """Delete checkpoints, logs and videos. Symbolic links are removed, not followed."""
        for folder in _LARGE:
            for path in _content(self.path / folder):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def _write(self, name: str, content: Any, *, indent: int | None = 1, synced: bool = True) -> None:
        replace_file(self.path / name, json.dumps(content, indent=indent).encode(), synced=synced)

    def _or_empty(self, name: str) -> dict[str, Any]:
        try:
            return self._read(name, dict) or {}
        except RunError:
            return {}

    def _read(self, name: str, kind: type[Json]) -> Json | None:
        try:
            return _read_json(self.path / name, kind)
        except (OSError, ValueError, TypeError) as problem:
            raise self._corrupt(problem, f"; delete {name} to continue without it") from problem

    def _corrupt(self, problem: Exception, hint: str = "") -> RunError:
        return RunError(f"{self.path} is damaged: {problem}{hint}")


def is_run(path: Path) -> bool:
    """Return whether `path` is a run directory. A run directory has a config file, which is written last."""
    try:
        return (path / CONFIG).is_file()
    except OSError:
        # Raised, for example, if the name is too long for the file system.
        return False


def not_a_run(path: Path) -> RunError:
    """Return the error for a path that is not a run directory. The message lists nearby runs."""
    return RunError(f"{path} is not a run directory: it has no {CONFIG}{_nearby(path)}")


def _nearby(path: Path) -> str:
    for folder in (path, path.parent):
        runs = sorted(p.parent.parent.name for p in folder.glob(f"*/{CONFIG}"))
        if runs:
            return f". Runs in {folder}: {', '.join(runs[-5:])}"
    return ""


def runs_below(folder: Path) -> list[Path]:
    """Return the run directories in `folder`, up to three levels deep, sorted by path."""
    if is_run(folder):
        return [folder]
    return sorted(run_directories(folder)) if folder.is_dir() else []


def run_directories(folder: Path, note: Callable[[str], None] = lambda _: None, depth: int = 1) -> Iterator[Path]:
    """Iterate over the run directories below `folder`. Calls `note` for corrupt or unreadable directories."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except PermissionError as error:
        note(f"skipped: {folder} cannot be read: {error.strerror}")
        return
    for entry in entries:
        path = folder / entry.name
        if entry.name.startswith(".") or not entry.is_dir():
            continue
        if not _is_unicode(entry.name):
            note(f"skipped: the name of {path!r} is not valid text")
        elif is_run(path):
            yield path
        elif RunDirectory(path).was_trained:
            note(f"skipped: {path} is damaged: it has no {CONFIG}")
        elif depth < _MAX_DEPTH:
            yield from run_directories(path, note, depth + 1)


def root_candidates(run: Path) -> Sequence[Path]:
    """Return the directories that may be the root of a run, nearest first."""
    return run.parents[:_MAX_DEPTH]


def reported_state(status: Mapping[str, Any]) -> str:
    """Return the state in the content of a status file, ignoring the lock."""
    return str(status.get("status", CREATED))


def split_checkpoint(text: str) -> tuple[str, str]:
    """Split ``RUN@checkpoint`` into run and checkpoint. Without a checkpoint, the checkpoint is "latest"."""
    run, at, checkpoint = text.rpartition("@")
    return (run, checkpoint) if at and "/" not in checkpoint else (text, "latest")


def config_hash(settings: Settings) -> str:
    """Return a hash of all settings that affect training or evaluation. Excludes seed, name and logging."""
    hashed = {key: value for key, value in _dotted(settings) if affects_training(key)}
    return hashlib.sha256(json.dumps(hashed, sort_keys=True, default=str).encode()).hexdigest()[:8]


def affects_training(key: str) -> bool:
    """Return whether a setting, given by its dotted name, affects training or evaluation."""
    return not any(key == ignored or key.startswith(f"{ignored}.") for ignored in _UNHASHED)


def file_stamp(path: Path) -> tuple[int, int, int]:
    """Return modification time, size and inode of a file. A rewritten file has a different stamp."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def modified_at(path: Path) -> str:
    """Return the modification time of a file in local ISO 8601."""
    return datetime.fromtimestamp(path.stat().st_mtime).isoformat(timespec="seconds")


def _stamp_or_none(path: Path) -> tuple[int, int, int] | None:
    try:
        return file_stamp(path)
    except FileNotFoundError:
        return None


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _content(folder: Path) -> Iterable[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ()


@lru_cache(maxsize=4096)
def _read_config(path: Path, *_stamp: int) -> StoredConfig:
    """Parse a config file. Cached by file stamp, because parsing YAML takes milliseconds."""
    written = read(path)
    # Hash the settings as written in the file, so that the hash stays the same if a release renames a setting.
    return StoredConfig(merged(inherited(written, path), written), config_hash(written))


def _dotted(settings: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _dotted(value, f"{at}{key}.")
        else:
            yield f"{at}{key}", value


def _read_json(path: Path, kind: type[Json]) -> Json | None:
    """Read a JSON value of type `kind`. Return None if the file is missing, or empty after a power failure."""
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
        raise TypeError(f"{path.name} contains a {type(found).__name__}, not a {kind.__name__}")
    return found
