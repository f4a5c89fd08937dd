"""Checkpoints of a training run: saving during training, loading for resume and for evaluation."""

from __future__ import annotations

from rl4sys.learner.learner import Learner
from rl4sys.policy.base import Policy
from rl4sys.policy.snapshot import Snapshot
from rl4sys.policy.snapshot_policy import SnapshotPolicy
from rl4sys.runs.run import Run
from rl4sys.spec import State
from rl4sys.training.progress import Observer
from rl4sys.training.setup import build_actor, build_local_learner


class Checkpointing:
    """Saves the state of a training loop in its run directory and remembers the step of the newest checkpoint."""

    def __init__(self, run: Run, observer: Observer) -> None:
        self._run, self._observer = run, observer
        self.saved_at: int | None = None

    @property
    def exists(self) -> bool:
        """True if the run has a checkpoint to resume from."""
        return bool(self._run.checkpoints.names())

    def load(self, name: str) -> tuple[str, State]:
        """Return name and state of a checkpoint or, if it is damaged, of the newest intact earlier checkpoint."""
        found = self._run.checkpoints.load(name)
        for damage in found.passed_over:
            self._observer.note(f"{damage}; using {found.name} instead")
        return found.name, found.state

    def save(self, step: int, state: State, policy: Snapshot | None, *, best: bool = False) -> None:
        self._run.checkpoints.save(step, state, policy, best=best)
        self.saved_at = step

    def save_failed(self, step: int, state: State, policy: Snapshot | None) -> None:
        """Save the state at a failure for inspection. Resume never uses this checkpoint."""
        name = self._run.checkpoints.save_aside(f"failed_{step}", state, policy)
        self._observer.note(f"the state at the failure was saved to {self._run.path}/checkpoints/{name}")


def load_trained_policy(run: Run, checkpoint: str, observer: Observer) -> Policy:
    """Return the policy of a checkpoint, from its snapshot or, without a snapshot, from the restored learner."""
    snapshot = run.checkpoints.load_policy(checkpoint)
    return (
        SnapshotPolicy(snapshot) if snapshot is not None else load_trained_learner(run, checkpoint, observer).policy()
    )


def load_trained_learner(run: Run, checkpoint: str, observer: Observer) -> Learner:
    """Return the learner as it was at a checkpoint, including its buffer."""
    actor = build_actor(run.config)
    learner = build_local_learner(run.config, actor, observer)
    learner.restore(run.checkpoints.load(checkpoint).state["learner"])
    actor.close()
    return learner
