"""Checkpoints: safetensors and JSON in a folder that appears whole or not at all, with checksums.

What never changes again (a `Segment`) is a file named by its checksum in the checkpoint's folder ``segments``, linked
there from an earlier checkpoint that has it: it is written once, and gone with the last checkpoint that holds it.
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
from rl4sys.experiment.files import link_or_copy, sync_directory, write_synced
from rl4sys.experiment.tree import join, split
from rl4sys.policy.snapshot import Snapshot
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
    """One checkpoint read back; ``passed_over`` says which newer ones were damaged, and how."""

    name: str
    state: State
    passed_over: tuple[str, ...] = ()


class CheckpointStore:
    """The ``checkpoints`` folder of a run: the newest few, and the best."""

    def __init__(self, directory: Path, keep: int = 3) -> None:
        self._directory, self._keep = directory, keep

    def save(self, step: int, state: State, snapshot: Snapshot | None, *, best: bool = False) -> str:
        """Write a checkpoint and point ``latest`` (and ``best``) at it; older ones beyond the limit go."""
        name = f"step_{step:012d}"
        self._write(name, state, snapshot)
        self._point(LATEST, name)
        if best:
            self._point(BEST, name)
        self._remove_old()
        return name

    def save_aside(self, name: str, state: State, snapshot: Snapshot | None) -> str:
        """Write a checkpoint to look at later, which nothing resumes from by itself."""
        self._write(name, state, snapshot)
        return name

    def load(self, name: str = LATEST) -> Checkpoint:
        """The checkpoint of that name; for ``latest``, the newest that is whole."""
        if name != LATEST:
            return Checkpoint(name, self._read(name))
        passed_over: list[str] = []
        for candidate in self._newest_first():
            try:
                return Checkpoint(candidate, self._read(candidate), tuple(passed_over))
            except CheckpointError as problem:
                passed_over.append(str(problem))
        found = "; ".join(passed_over) or "the folder holds none"
        raise CheckpointError(
            f"no usable checkpoint in {self._directory}: {found}. Start the run again from its config"
        )

    def load_policy(self, name: str = LATEST) -> Snapshot | None:
        """The policy of a checkpoint, frozen, without the rest of its state; None if its network has no such form."""
        folder = self._folder(name)
        if not (folder / POLICY).is_file():
            return None
        try:
            return Snapshot.from_bytes(self._verified(folder, POLICY))
        except CheckpointError:
            raise
        except RL4SysError as problem:
            raise CheckpointError(f"checkpoint {name} holds a damaged policy: {problem}") from problem

    def resolve(self, name: str) -> str:
        """The checkpoint that ``latest`` or ``best`` stands for; any other name as it is."""
        return self._folder(name).resolve().name

    def names(self) -> list[str]:
        """All checkpoints by name, oldest first, with ``latest`` and ``best`` where they exist."""
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
                f"cannot write checkpoint {name} to {self._directory}: {problem.strerror}; earlier checkpoints are as "
                "they were. Make room or permission there and resume"
            ) from problem

    def _fill(self, folder: Path, state: State, snapshot: Snapshot | None) -> None:
        folder.mkdir(parents=True)
        document, arrays = split(state, _SegmentWriter(folder / _SEGMENTS, self._saved_segments()).keep)
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
        """Every segment of the checkpoints there are, by its name."""
        return {path.stem: path for path in self._directory.glob(f"[!.]*/{_SEGMENTS}/*")}

    def _read(self, name: str) -> State:
        folder = self._folder(name)
        arrays, _ = tensors.decode(self._verified(folder, _STATE_ARRAYS))
        document = json.loads(self._verified(folder, _STATE_JSON))
        tree: State = join(document, arrays, lambda digest: _find_segment(folder, digest))
        return tree

    def _folder(self, name: str) -> Path:
        folder = self._directory / name
        if not folder.is_dir():
            raise CheckpointError(f"no checkpoint {name!r} in {self._directory}; there are: {self._listing()}")
        return folder

    def _verified(self, folder: Path, name: str) -> bytes:
        """The content of a file, if it is what was written."""
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
                f"checkpoint {folder.name} has the format {written!r:.20}, and this rl4sys reads {FORMAT}; "
                "use the release that wrote it"
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
    """Puts segments into a checkpoint that is being written: links to those that are there, files for new ones."""

    def __init__(self, folder: Path, saved: Mapping[str, Path]) -> None:
        self._folder, self._saved = folder, saved

    def keep(self, segment: Segment) -> str:
        self._folder.mkdir(exist_ok=True)
        if segment.digest is not None and segment.digest in self._saved:
            return self._link(segment.digest)
        content = tensors.encode(segment.read(), {})
        segment.digest = _digest(content)
        # What an earlier life left under this name may be damaged.
        if segment.digest in self._saved and self._saved[segment.digest].read_bytes() == content:
            return self._link(segment.digest)
        write_synced(self._folder / _segment_file(segment.digest), content)
        return segment.digest

    def _link(self, digest: str) -> str:
        path = self._folder / _segment_file(digest)
        # A state may hold the same content twice.
        if not path.exists():
            link_or_copy(self._saved[digest], path)
        return digest


def _find_segment(folder: Path, digest: str) -> Segment:
    """A segment that was found to be whole; it is read, and checked, again when it is asked for."""

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
