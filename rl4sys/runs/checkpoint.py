"""Checkpoints: directories of safetensors and JSON files with checksums, created atomically.

Data that never changes again (a `Segment`) is a file in the directory `segments` of the checkpoint, named by its
checksum. Later checkpoints hard-link the file, so it is written once and deleted with the last checkpoint that uses it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl4sys import tensors
from rl4sys.errors import CheckpointError, RL4SysError, RunError
from rl4sys.policy.snapshot import Snapshot
from rl4sys.runs.files import link_or_copy, sync_directory, write_synced
from rl4sys.runs.state_tree import join_state, split_state
from rl4sys.segments import Segment
from rl4sys.spec import Columns, State

FORMAT = 2
LATEST, BEST = "latest", "best"
POLICY = "policy.safetensors"
_STATE_JSON, _STATE_ARRAYS, _MANIFEST = "state.json", "state.safetensors", "manifest.json"
_SEGMENTS = "segments"
_NAME = re.compile(r"step_\d{12}")


@dataclass(frozen=True)
class Checkpoint:
    """Loaded checkpoint. `passed_over` holds the error messages of newer checkpoints that are corrupt."""

    name: str
    state: State
    passed_over: tuple[str, ...] = ()


class CheckpointStore:
    """Access to the directory `checkpoints` of a run. Keeps the newest `keep` checkpoints and the best one."""

    def __init__(self, directory: Path, keep: int = 3) -> None:
        self._directory, self._keep = directory, keep

    def save(self, step: int, state: State, snapshot: Snapshot | None, *, best: bool = False) -> str:
        """Write a checkpoint, link `latest` (and `best`) to it, and delete the oldest checkpoints beyond `keep`."""
        name = f"step_{step:012d}"
        self._write(name, state, snapshot)
        self._point(LATEST, name)
        if best:
            self._point(BEST, name)
        self._remove_old()
        return name

    def save_named(self, name: str, state: State) -> str:
        """Write a checkpoint under any name and link `latest` to it. Deletes no other checkpoint."""
        self._write(name, state, None)
        self._point(LATEST, name)
        return name

    def save_aside(self, name: str, state: State, snapshot: Snapshot | None) -> str:
        """Write a checkpoint for inspection under any name. Does not change `latest`, so no run resumes from it."""
        self._write(name, state, snapshot)
        return name

    def load(self, name: str = LATEST) -> Checkpoint:
        """Load a checkpoint by name; for `latest`, the newest one that is not corrupt."""
        if name != LATEST:
            return Checkpoint(name, self._read(name))
        passed_over: list[str] = []
        for candidate in self._newest_first():
            try:
                return Checkpoint(candidate, self._read(candidate), tuple(passed_over))
            except CheckpointError as problem:
                passed_over.append(str(problem))
        found = "; ".join(passed_over) or "the directory is empty"
        raise CheckpointError(f"no usable checkpoint in {self._directory}: {found}. Start a new run from the config")

    def load_policy(self, name: str = LATEST) -> Snapshot | None:
        """Load only the policy of a checkpoint. Return None if the network cannot be exported as a snapshot."""
        folder = self._folder(name)
        if not (folder / POLICY).is_file():
            return None
        try:
            return Snapshot.from_bytes(self._verified(folder, POLICY))
        except CheckpointError:
            raise
        except RL4SysError as problem:
            raise CheckpointError(f"the policy of checkpoint {name} is damaged: {problem}") from problem

    def resolve(self, name: str) -> str:
        """Return the name of the checkpoint that `latest` or `best` links to. Return any other name unchanged."""
        return self._folder(name).resolve().name

    def names(self) -> list[str]:
        """Return the names of all checkpoints, oldest first, then `latest` and `best` if they exist."""
        return [*reversed(self._newest_first()), *(n for n in (LATEST, BEST) if (self._directory / n).exists())]

    def _write(self, name: str, state: State, snapshot: Snapshot | None) -> None:
        building, old = (self._directory / f".{name}.{suffix}" for suffix in ("new", "old"))
        for leftover in (building, old):
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            self._fill(building, state, snapshot)
            final = self._directory / name
            if final.exists():
                final.rename(old)
            building.rename(final)
            sync_directory(self._directory)
            shutil.rmtree(old, ignore_errors=True)
        except OSError as problem:
            shutil.rmtree(building, ignore_errors=True)
            raise RunError(
                f"cannot write checkpoint {name} to {self._directory}: {problem.strerror}; earlier checkpoints are "
                "unchanged. Free space or fix the permissions, then resume"
            ) from problem

    def _fill(self, folder: Path, state: State, snapshot: Snapshot | None) -> None:
        folder.mkdir(parents=True)
        document, arrays = split_state(state, _SegmentWriter(folder / _SEGMENTS, self._saved_segments()).write)
        files = {_STATE_JSON: json.dumps(document).encode(), _STATE_ARRAYS: tensors.encode(arrays, {})}
        if snapshot is not None:
            files[POLICY] = snapshot.to_bytes()
        for name, content in files.items():
            write_synced(folder / name, content)
        manifest = {"format": FORMAT, "sha256": {name: _digest(content) for name, content in files.items()}}
        write_synced(folder / _MANIFEST, json.dumps(manifest, indent=1).encode())
        for written in (folder / _SEGMENTS, folder):
            if written.is_dir():
                sync_directory(written)

    def _saved_segments(self) -> dict[str, Path]:
        """Return the segment files of all checkpoints by digest."""
        return {path.stem: path for path in self._directory.glob(f"[!.]*/{_SEGMENTS}/*")}

    def _read(self, name: str) -> State:
        folder = self._folder(name)
        arrays, _ = tensors.decode(self._verified(folder, _STATE_ARRAYS))
        document = json.loads(self._verified(folder, _STATE_JSON))
        tree: State = join_state(document, arrays, lambda digest: _open_segment(folder, digest))
        return tree

    def _folder(self, name: str) -> Path:
        folder = self._directory / name
        if not folder.is_dir():
            raise CheckpointError(f"no checkpoint {name!r} in {self._directory}; available: {self._listing()}")
        return folder

    def _verified(self, folder: Path, name: str) -> bytes:
        """Read a file and check its checksum and the format version. Raises `CheckpointError` if either is wrong."""
        try:
            expected: dict[str, Any] = json.loads((folder / _MANIFEST).read_bytes())
            content = (folder / name).read_bytes()
            written, matches = expected["format"], expected["sha256"][name] == _digest(content)
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise CheckpointError(f"checkpoint {folder.name} is damaged: {problem!r}") from problem
        if not matches:
            raise CheckpointError(f"checkpoint {folder.name} is damaged: {name} does not match its checksum")
        if written != FORMAT:
            raise CheckpointError(
                f"checkpoint {folder.name} has format {written!r:.20}, but this version of rl4sys reads format "
                f"{FORMAT}; use the version of rl4sys that wrote the checkpoint"
            )
        return content

    def _point(self, link: str, name: str) -> None:
        temporary = self._directory / f".{link}.new"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(name)
        temporary.replace(self._directory / link)

    def _remove_old(self) -> None:
        links = (self._directory / link for link in (LATEST, BEST))
        protected = {link.readlink().name for link in links if link.is_symlink()}
        for name in self._newest_first()[self._keep :]:
            if name not in protected:
                shutil.rmtree(self._directory / name)

    def _newest_first(self) -> list[str]:
        names = (path.name for path in self._directory.glob("step_*") if path.is_dir())
        return sorted(filter(_NAME.fullmatch, names), reverse=True)

    def _listing(self) -> str:
        return ", ".join(self.names()) or "none"


class _SegmentWriter:
    """Adds segments to a new checkpoint, as hard links to the files of an earlier checkpoint or as new files."""

    def __init__(self, folder: Path, saved: Mapping[str, Path]) -> None:
        self._folder, self._saved = folder, saved

    def write(self, segment: Segment) -> str:
        """Add a segment and return its digest."""
        self._folder.mkdir(exist_ok=True)
        if segment.digest is not None and segment.digest in self._saved:
            return self._link(segment.digest)
        content = tensors.encode(segment.read(), {})
        segment.digest = _digest(content)
        # A file with this name from an earlier process may be corrupt.
        if segment.digest in self._saved and self._saved[segment.digest].read_bytes() == content:
            return self._link(segment.digest)
        write_synced(self._folder / _segment_file(segment.digest), content)
        return segment.digest

    def _link(self, digest: str) -> str:
        path = self._folder / _segment_file(digest)
        # A state may contain the same segment twice.
        if not path.exists():
            link_or_copy(self._saved[digest], path)
        return digest


def _open_segment(folder: Path, digest: str) -> Segment:
    """Verify the file of a segment and return the segment. Each use of its data reads and verifies the file again."""

    def read() -> Columns:
        try:
            content = (folder / _SEGMENTS / _segment_file(digest)).read_bytes()
        except OSError as problem:
            raise CheckpointError(f"checkpoint {folder.name} is damaged: {problem!r}") from problem
        if _digest(content) != digest:
            raise CheckpointError(f"checkpoint {folder.name} is damaged: segment {digest} does not match its checksum")
        return tensors.decode(content)[0]

    read()
    return Segment(read, digest)


def _segment_file(digest: str) -> str:
    return f"{digest}.safetensors"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
