"""What a learner starts from: the recorded experience that its config names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rl4sys.algorithms.base import Metrics
from rl4sys.buffers.base import BufferConfig
from rl4sys.buffers.union import UnionConfig
from rl4sys.dataset import DatasetConfig, check_same_spec, load_dataset
from rl4sys.errors import ConfigError
from rl4sys.experiment.config import ExperimentConfig
from rl4sys.learner import Learner
from rl4sys.spec import Spec
from rl4sys.trajectory import Trajectory


def load_pools(config: BufferConfig, spec: Spec) -> Mapping[str, Sequence[Trajectory]]:
    """The data sets of the pools of a `union`, for a learner that has learnt nothing yet; later it holds them."""
    if not isinstance(config, UnionConfig):
        return {}
    pools = {name: _load(pool.dataset, spec) for name, pool in config.pools.items() if pool.dataset is not None}
    for name, trajectories in pools.items():
        steps, room = sum(map(len, trajectories)), config.pools[name].buffer.size
        if steps > room:
            raise ConfigError(
                f"buffer.pools.{name} holds {room:,} steps, and its data set has {steps:,}; raise its buffer.size"
            )
    return pools


def warm_start(learner: Learner, spec: Spec, config: ExperimentConfig) -> Metrics:
    """As the config says, if it does; for a learner that has learnt nothing yet."""
    if config.warm_start is None:
        return {}
    return learner.warm_start(_load(config.warm_start.dataset, spec))


def _load(config: DatasetConfig, spec: Spec) -> Sequence[Trajectory]:
    dataset = load_dataset(config)
    check_same_spec(dataset.spec, spec, "the policy that is to learn from it")
    return dataset.trajectories
