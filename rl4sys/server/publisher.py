"""Publication of the models and the progress of a learner process."""

from __future__ import annotations

from pathlib import Path

from rl4sys.runs.directory import VERSIONS
from rl4sys.runs.files import replace_file
from rl4sys.server.journal_learner import JournalLearner
from rl4sys.workers.frames import Frame, Pipe


class Publisher:
    """Sends progress and new models to the server, and stores the newest models in the run directory."""

    def __init__(self, trained: JournalLearner, path: Path, pipe: Pipe, keep_versions: int) -> None:
        self._trained, self._folder, self._pipe = trained, path / VERSIONS, pipe
        self._keep_versions = keep_versions
        self._published = -1

    def publish(self) -> None:
        """Send the learner's progress, and its model if the version is new. The model is written to disk first."""
        trained, learner = self._trained, self._trained.learner
        fields = {
            "version": learner.version,
            "wants": learner.steps_to_next_update(),
            "row": trained.row,
            "steps_used": learner.steps,
            "steps_refused": learner.refused,
            "staleness": trained.mean_staleness(),
            "episode_return": trained.episodes.means().get("episode/return"),
            "last_learned": trained.clients.state(),
            "alerts": trained.active_alerts(),
        }
        self._pipe.send(Frame("progress", fields, self._new_model()))

    def _new_model(self) -> bytes:
        """Store and return the encoded model; empty if the version was already published or cannot be exported."""
        version = self._trained.learner.version
        if version == self._published:
            return b""
        self._published = version
        model = self._trained.learner.snapshot_or_none()
        if model is None:
            return b""
        content = model.to_bytes()
        self._store(version, content)
        return content

    def _store(self, version: int, content: bytes) -> None:
        self._folder.mkdir(exist_ok=True)
        replace_file(self._folder / f"{version:012d}.safetensors", content)
        for old in sorted(self._folder.glob("*.safetensors"))[: -self._keep_versions]:
            old.unlink()
