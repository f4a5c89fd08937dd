"""Recorded experience, by the names that a config gives it."""

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
    """A ``dataset`` block: experience that was recorded."""

    type: str
    """What it is: journal (of a policy that a server trains), minari, or the name a plugin registered."""
    path: str
    """Where it is: the policy's run directory; of minari the id, or a directory."""


@dataclass(frozen=True)
class Dataset:
    """Recorded experience, and the spec it was recorded by. Trajectories of one episode follow each other."""

    spec: Spec
    trajectories: tuple[Trajectory, ...]

    @property
    def steps(self) -> int:
        return sum(map(len, self.trajectories))


def load_dataset(config: DatasetConfig) -> Dataset:
    dataset: Dataset = DATASETS.get(config.type)(config)
    if dataset.steps == 0:
        raise ConfigError(f"the data set {config.path} has no step to learn from")
    return dataset


def check_same_spec(recorded: Spec, wanted: Spec, of: str) -> None:
    """Raise unless what was recorded can be learnt from for the spec ``of`` something."""
    for name, (of_data, needed) in _parts(recorded, wanted).items():
        if of_data != needed:
            raise ConfigError(f"the data set has {name} {of_data}, and {of} has {needed}")


def _parts(recorded: Spec, wanted: Spec) -> Mapping[str, tuple[Any, Any]]:
    def shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
        return {name: box.shape for name, box in spec.observation.items()}

    def kind(spec: Spec) -> tuple[str, Any]:
        action = spec.action
        return type(action).__name__, getattr(action, "choices", action.shape)

    return {"observations": (shapes(recorded), shapes(wanted)), "actions": (kind(recorded), kind(wanted))}
