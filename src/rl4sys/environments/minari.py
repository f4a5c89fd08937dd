"""Minari's data sets: episodes of Gymnasium environments that others recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from rl4sys.dataset import Dataset, DatasetConfig
from rl4sys.environments.encoding import Encoding
from rl4sys.errors import ConfigError, MissingExtraError
from rl4sys.trajectory import OBSERVATION, Trajectory


def load_minari(config: DatasetConfig) -> Dataset:
    """A data set of this machine, by its id or its directory; nothing is downloaded."""
    try:
        import minari
        from minari.storage.datasets_root_dir import get_dataset_path
    except ModuleNotFoundError as problem:
        raise MissingExtraError(
            f"the dataset 'minari' needs {problem.name}, which is not installed: pip install 'rl4sys[minari]'"
        ) from problem
    path = _find(config.path, get_dataset_path())
    try:
        _check_harmless(path)
        recorded = minari.MinariDataset(path)
        encoding = Encoding(_Recorded(recorded))
        return Dataset(encoding.spec, tuple(_trajectories(recorded, encoding)))
    except (AssertionError, ImportError, KeyError, OSError, TypeError, ValueError) as problem:
        raise ConfigError(f"the Minari data set {config.path} cannot be read: {problem!r:.300}") from problem


def _find(name: str, held: Path) -> Path:
    """The folder with the data: within the directory named, or that of the id among those on this machine."""
    for path in (Path(name), Path(name, "data"), held / name / "data"):
        if (path / "metadata.json").is_file():
            return path
    raise ConfigError(
        f"dataset.path is {name!r}, which is neither a directory with a Minari data set nor the id of one in {held}; "
        f"get it with `minari download {name}`, and see `minari list remote` for those there are"
    )


def _check_harmless(path: Path) -> None:
    """Raise if reading could run code: data that lacks its spaces has Minari make the environment that it names.

    HDF5 holds arrays and text alone.
    """
    metadata = json.loads((path / "metadata.json").read_text(encoding="utf-8"))
    if not {"observation_space", "action_space"} <= set(metadata):
        raise ConfigError(f"the Minari data set {path} does not say its spaces; write it anew with both of them")
    if metadata.get("data_format") != "hdf5":
        raise ConfigError(
            f"the Minari data set {path} is in the format {metadata.get('data_format')!r}; only hdf5 is read"
        )


class _Recorded(gymnasium.Env[Any, Any]):
    """A data set in the place of its environment: its spaces, and what came with its first observation."""

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
            raise ValueError(f"episode {episode.id} goes on after it ended at step {ended[0]}")
        if steps:
            yield _trajectory(episode, encoding.encode(episode.observations, episode.infos or {}), encoding)


def _trajectory(episode: Any, observation: Mapping[str, Any], encoding: Encoding) -> Trajectory:
    columns = {OBSERVATION + name: column for name, column in observation.items()}
    columns["action"] = encoding.from_system(episode.actions)
    columns["reward"] = np.asarray(episode.rewards, np.float32)
    columns["log_prob"] = np.zeros(len(episode.rewards), np.float32)  # not known
    return Trajectory(
        0,
        columns,
        episode=int(episode.id),
        terminated=bool(episode.terminations[-1]),
        truncated=bool(episode.truncations[-1]),
    )
