"""Dataset for offline training, read from the journal of a hosted policy."""

from __future__ import annotations

from pathlib import Path

from rl4sys.dataset import Dataset, DatasetConfig
from rl4sys.runs.directory import RunDirectory
from rl4sys.server.journal import read_trajectories
from rl4sys.spec import Spec
from rl4sys.trajectory import Trajectory


def load_journal(config: DatasetConfig) -> Dataset:
    """Load all trajectories in the journal of the run directory `config.path`, grouped by episode."""
    run = Path(config.path)
    episodes: dict[int, list[Trajectory]] = {}
    # Trajectories of different clients interleave in the journal; those of one episode are in order.
    for trajectory in read_trajectories(run):
        episodes.setdefault(trajectory.episode, []).append(trajectory)
    spec = Spec.from_json(RunDirectory(run).live_config()["spec"])
    return Dataset(spec, tuple(trajectory for episode in episodes.values() for trajectory in episode))
