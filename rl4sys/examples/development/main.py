"""Train one variant.

    python -m examples.development.main --algorithm SAC --universe gym --domain Pendulum --task v1

`softlearning run_example_local examples.development …` trains the same variants and supports more
options.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rl4sys.command_errors import errors_as_messages
from rl4sys.config import Settings
from rl4sys.policy.base import Policy
from rl4sys.runs.config import convert_variant, parse_experiment
from rl4sys.runs.run import Run
from rl4sys.training.loop import TrainingLoop
from rl4sys.training.progress import Progress

from .variants import get_variant_spec


class PrintNotes:
    """Training observer that prints notes and each evaluation."""

    def __init__(self) -> None:
        self._evaluated_at: int | None = None

    def note(self, message: str) -> None:
        print(f"note: {message}")

    def progress(self, progress: Progress) -> None:
        if progress.evaluation is not None and progress.evaluated_at != self._evaluated_at:
            self._evaluated_at = progress.evaluated_at
            print(f"{progress.evaluated_at:,} steps: evaluation return {progress.evaluation.mean_return:.1f}")


class ExperimentRunner:
    """One trial of a variant, in a new run directory below ``root``."""

    def __init__(self, variant: Settings, root: Path = Path("experiments")) -> None:
        config = parse_experiment(convert_variant(variant))
        self._open(Run.create(root, config, datetime.now()))

    @classmethod
    def restore(cls, checkpoint: Path) -> ExperimentRunner:
        """Return the trial of a checkpoint directory. Training continues bit for bit from the checkpoint."""
        runner = cls.__new__(cls)
        runner._open(Run.open(checkpoint.parent.parent))
        runner._loop.resume(checkpoint.name)
        return runner

    def train(self) -> Progress:
        """Train until all steps are taken, with periodic evaluations and checkpoints."""
        return self._loop.train()

    @property
    def checkpoints(self) -> list[Path]:
        """Checkpoint directories of the trial, oldest first."""
        return [self.run.directory.checkpoints / name for name in self.run.checkpoints.names()]

    @property
    def policy(self) -> Policy | None:
        """Snapshot of the current policy; None if only torch can run its network."""
        from rl4sys.policy.snapshot_policy import SnapshotPolicy

        snapshot = self._loop.snapshot_or_none()
        return None if snapshot is None else SnapshotPolicy(snapshot)

    def _open(self, run: Run) -> None:
        self.run, self._loop = run, TrainingLoop(run, PrintNotes())


def get_parser() -> ArgumentParser:
    """Return a parser for the options that select a variant."""
    parser = ArgumentParser(prog="python -m examples.development.main", description="Train a policy.")
    parser.add_argument("--algorithm", default="SAC", help="SAC or SQL")
    parser.add_argument("--universe", default="gym", help="gym or dm_control")
    parser.add_argument("--domain", default="Pendulum", help="environment, such as HalfCheetah or walker")
    parser.add_argument("--task", help="version or task, such as v5 or walk")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the variant selected by the options."""
    with errors_as_messages():
        runner = ExperimentRunner(get_variant_spec(get_parser().parse_args(arguments)))
        print(f"run directory: {runner.run.path}")
        runner.train()


if __name__ == "__main__":
    main()
