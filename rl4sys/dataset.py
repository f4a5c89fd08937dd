"""Datasets of recorded trajectories, loaded according to the type in their config."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from pydantic import model_validator

from rl4sys.config import Config
from rl4sys.errors import ConfigError
from rl4sys.registry import DATASETS
from rl4sys.spec import Spec
from rl4sys.trajectory import Trajectory

ColumnNames: TypeAlias = str | list[str]
"""A column, a prefix that ends in ``*``, or a list of columns that together form a vector."""

_WITH_SPACES = ("journal", "minari")
"""Dataset types that store the names of their columns and their spaces."""


class ColumnsConfig(Config):
    """The ``dataset.columns`` block: columns of a file with recorded steps; null finds a column by its usual names."""

    observation: ColumnNames | dict[str, ColumnNames] | None = None
    """Observation before each step: a column; a prefix such as obs_*, or a list of columns, which form a vector; or a
    block with one of these for each named observation. Usual names: observation, observations, obs."""
    next_observation: ColumnNames | dict[str, ColumnNames] | None = None
    """Observation after each step, in the same form. Without it, the last step of an episode that did not terminate
    only provides the final observation. Usual names: next_observation, next_observations, next_obs."""
    action: ColumnNames | None = None
    """Action: a column, a prefix or a list of columns. Usual names: action, actions, act."""
    reward: str | float | None = None
    """Column of the reward, or one number for all steps. Usual names: reward, rewards, rew."""
    terminated: str | bool | None = None
    """Column that is true if the step ended the episode, or false if no step did. Usual names: terminated, terminal,
    terminals, termination, terminations."""
    truncated: str | None = None
    """Column that is true if the episode was cut off after the step, for example by a time limit. A step that also has
    terminated counts as truncated. Usual names: truncated, truncation, truncations, timeout, timeouts."""
    episode: str | None = None
    """Column with the number or name of the episode; the rows of an episode are consecutive. Usual names: episode,
    episodes, episode_id, episode_index."""


class DatasetConfig(Config):
    """The ``dataset`` block of a config."""

    type: str
    """Dataset type: journal (of a policy trained by a server), minari, file, or the name of a registered plugin."""
    path: str
    """Location of the dataset: the run directory of the policy, the id or directory of a Minari dataset, or a file
    (.npz, .csv or .parquet) or folder of Parquet files. Relative to the config file or the current directory."""
    columns: ColumnsConfig | None = None
    """With type file: columns of the file; null finds them by their usual names."""
    action: Any = None
    """With type file: action space, as in a client config: the number of discrete actions, a list of such numbers, or a
    block with size, low and high. null takes the space of the environment; needed if its family is live."""

    @model_validator(mode="after")
    def _check_type(self) -> Self:
        for name in ("columns", "action"):
            if self.type in _WITH_SPACES and getattr(self, name) is not None:
                raise ValueError(f"a dataset of type {self.type} has no setting {name}; remove it, or use type file")
        return self


@dataclass(frozen=True)
class Dataset:
    """Recorded trajectories and their spec. Trajectories of the same episode are consecutive."""

    spec: Spec
    trajectories: tuple[Trajectory, ...]

    @property
    def steps(self) -> int:
        return sum(map(len, self.trajectories))


def load_dataset(config: DatasetConfig, spec: Spec | None = None) -> Dataset:
    """Load the dataset of a config. Raises `ConfigError` if the dataset has no steps.

    ``spec`` is the spec that the steps should have, passed to loaders with a parameter ``spec``. They read files that
    do not contain their spaces.
    """
    load = DATASETS.get(config.type)
    takes_spec = "spec" in inspect.signature(load).parameters
    dataset: Dataset = load(config, spec=spec) if takes_spec else load(config)
    if dataset.steps == 0:
        raise ConfigError(f"the dataset {config.path} is empty")
    return dataset


def check_same_spec(recorded: Spec, wanted: Spec, of: str) -> None:
    """Raise `ConfigError` unless a dataset has the spaces ``wanted``. ``of`` names their owner in the message."""
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
