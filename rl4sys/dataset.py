"""Datasets of recorded trajectories, loaded by the type in their config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl4sys.config import Config
from rl4sys.errors import ConfigError
from rl4sys.registry import DATASETS
from rl4sys.spec import Spec
from rl4sys.trajectory import Trajectory


class DatasetConfig(Config):
    """The ``dataset`` block of a config."""

    type: str
    """Dataset type: journal (of a policy trained by a server), minari, or the name of a registered plugin."""
    path: str
    """Location: the run directory of the policy, or the id or directory of a Minari dataset."""


@dataclass(frozen=True)
class Dataset:
    """Recorded trajectories and their spec. Trajectories of one episode are consecutive."""

    spec: Spec
    trajectories: tuple[Trajectory, ...]

    @property
    def steps(self) -> int:
        return sum(map(len, self.trajectories))


def load_dataset(config: DatasetConfig) -> Dataset:
    """Load the dataset of a config. Raises `ConfigError` if the dataset has no steps."""
    dataset: Dataset = DATASETS.get(config.type)(config)
    if dataset.steps == 0:
        raise ConfigError(f"the dataset {config.path} is empty")
    return dataset


def check_same_spec(recorded: Spec, wanted: Spec, of: str) -> None:
    """Check that a dataset has the same spaces as ``wanted``, the spec of ``of``. Raises `ConfigError` if not."""
    for name, (of_data, needed) in _compared_shapes(recorded, wanted).items():
        if of_data != needed:
            raise ConfigError(f"the dataset has {name} {of_data}, but {of} has {needed}")


def _compared_shapes(recorded: Spec, wanted: Spec) -> Mapping[str, tuple[Any, Any]]:
    def shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
        return {name: box.shape for name, box in spec.observation.items()}

    def kind(spec: Spec) -> tuple[str, Any]:
        action = spec.action
        return type(action).__name__, getattr(action, "choices", action.shape)

    return {"observations": (shapes(recorded), shapes(wanted)), "actions": (kind(recorded), kind(wanted))}
