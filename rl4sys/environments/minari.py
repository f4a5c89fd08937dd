"""Minari datasets: recorded episodes of Gymnasium environments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from rl4sys.dataset import Dataset, DatasetConfig
from rl4sys.environments.encoding import Encoding
from rl4sys.errors import ConfigError
from rl4sys.extras import needed_by
from rl4sys.trajectory import OBSERVATION, Trajectory


def load_minari(config: DatasetConfig) -> Dataset:
    """Load a local Minari dataset by its id or directory. Nothing is downloaded."""
    with needed_by("the dataset 'minari'"):
        import minari
        from minari.storage.datasets_root_dir import get_dataset_path
    path = _find(config.path, get_dataset_path())
    try:
        _check_safe(path)
        recorded = minari.MinariDataset(path)
        encoding = Encoding(_DatasetEnvironment(recorded))
        return Dataset(encoding.spec, tuple(_trajectories(recorded, encoding)))
    except (AssertionError, ImportError, KeyError, OSError, TypeError, ValueError) as problem:
        raise ConfigError(f"the Minari dataset {config.path} cannot be read: {problem!r:.300}") from problem


def _find(name: str, local: Path) -> Path:
    """Return the data directory of a dataset: ``name``, ``name``/data, or the directory of the dataset id ``name``."""
    for path in (Path(name), Path(name, "data"), local / name / "data"):
        if (path / "metadata.json").is_file():
            return path
    raise ConfigError(
        f"dataset.path is {name!r}, which is neither the directory of a Minari dataset nor the id of one in {local}; "
        f"download it with `minari download {name}`, or list the available ones with `minari list remote`"
    )


def _check_safe(path: Path) -> None:
    """Raise ConfigError if reading the dataset could run code.

    For a dataset without spaces, Minari creates the environment named in the metadata. HDF5 files contain only arrays
    and text.
    """
    metadata = json.loads((path / "metadata.json").read_text(encoding="utf-8"))
    if not {"observation_space", "action_space"} <= set(metadata):
        raise ConfigError(
            f"the Minari dataset {path} lacks the observation or action space; create the dataset with both spaces"
        )
    if metadata.get("data_format") != "hdf5":
        raise ConfigError(
            f"the Minari dataset {path} has the format {metadata.get('data_format')!r}; only hdf5 is supported"
        )


class _DatasetEnvironment(gymnasium.Env[Any, Any]):
    """Environment with the spaces of a dataset. ``reset`` returns no observation and the infos of the first episode."""

    def __init__(self, dataset: Any) -> None:
        self.observation_space, self.action_space = dataset.observation_space, dataset.action_space
        self._dataset = dataset

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        first = next(iter(self._dataset.iterate_episodes()), None)
        return None, dict((first.infos if first else None) or {})


def _trajectories(dataset: Any, encoding: Encoding) -> Iterator[Trajectory]:
    for episode in dataset.iterate_episodes():
        steps = len(episode.rewards)
        ended = np.flatnonzero(episode.terminations | episode.truncations)
        if steps and (ended[:1] < steps - 1).any():
            raise ValueError(f"episode {episode.id} continues after its end at step {ended[0]}")
        if steps:
            yield _trajectory(episode, encoding.encode(episode.observations, episode.infos or {}), encoding)


def _trajectory(episode: Any, observation: Mapping[str, Any], encoding: Encoding) -> Trajectory:
    columns = {OBSERVATION + name: column for name, column in observation.items()}
    columns["action"] = encoding.encode_actions(episode.actions)
    columns["reward"] = np.asarray(episode.rewards, np.float32)
    columns["log_prob"] = np.zeros(len(episode.rewards), np.float32)  # not recorded by Minari
    return Trajectory(
        0,
        columns,
        episode=int(episode.id),
        terminated=bool(episode.terminations[-1]),
        truncated=bool(episode.truncations[-1]),
    )
