"""A policy's journal as a data set."""

from __future__ import annotations

import json
from pathlib import Path

from rl4sys.dataset import Dataset, DatasetConfig
from rl4sys.server.journal import read_trajectories
from rl4sys.server.task import LIVE
from rl4sys.spec import Spec
from rl4sys.trajectory import Trajectory


def load_journal(config: DatasetConfig) -> Dataset:
    """All that a policy's clients have sent and the server still holds, as a data set."""
    run = Path(config.path)
    held: dict[int, list[Trajectory]] = {}
    # Clients take turns in the journal; the pieces of an episode are in order.
    for trajectory in read_trajectories(run):
        held.setdefault(trajectory.episode, []).append(trajectory)
    spec = Spec.from_json(json.loads((run / LIVE).read_text(encoding="utf-8"))["spec"])
    return Dataset(spec, tuple(piece for pieces in held.values() for piece in pieces))
