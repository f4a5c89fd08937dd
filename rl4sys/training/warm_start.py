"""Warm start and initial buffer content from recorded datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rl4sys.algorithms.base import Metrics
from rl4sys.buffers.base import BufferConfig
from rl4sys.buffers.union import UnionConfig
from rl4sys.dataset import DatasetConfig, check_same_spec, load_dataset
from rl4sys.errors import ConfigError
from rl4sys.learner.learner import Learner
from rl4sys.runs.config import ExperimentConfig
from rl4sys.spec import Spec
from rl4sys.trajectory import Trajectory


def load_pools(config: BufferConfig, spec: Spec) -> Mapping[str, Sequence[Trajectory]]:
    """Load the datasets of a `union` buffer by pool name. Only new runs need them; checkpoints contain the data."""
    if not isinstance(config, UnionConfig):
        return {}
    pools = {name: _load(pool.dataset, spec) for name, pool in config.pools.items() if pool.dataset is not None}
    for name, trajectories in pools.items():
        steps, capacity = sum(map(len, trajectories)), config.pools[name].buffer.size
        if steps > capacity:
            raise ConfigError(
                f"buffer.pools.{name} has a capacity of {capacity:,} steps, but its dataset has {steps:,}; "
                f"increase buffer.pools.{name}.buffer.size"
            )
    return pools


def warm_start(learner: Learner, spec: Spec, config: ExperimentConfig) -> Metrics:
    """Warm-start a new learner and return its metrics; does nothing if the config has no ``warm_start`` block."""
    if config.warm_start is None:
        return {}
    return learner.warm_start(_load(config.warm_start.dataset, spec))


def _load(config: DatasetConfig, spec: Spec) -> Sequence[Trajectory]:
    dataset = load_dataset(config, spec)
    check_same_spec(dataset.spec, spec, "the policy")
    return dataset.trajectories
