"""Dataset of recorded steps in a file or a folder: NumPy archive, CSV or Parquet."""

from __future__ import annotations

from pathlib import Path

from rl4sys.client.spaces import written_action
from rl4sys.dataset import ColumnsConfig, Dataset, DatasetConfig
from rl4sys.datasets.columns import find_columns
from rl4sys.datasets.csv_file import CsvTable
from rl4sys.datasets.episodes import trajectories
from rl4sys.datasets.npz import NpzTable
from rl4sys.datasets.parquet import ParquetTable, parquet_files
from rl4sys.datasets.steps import read_steps
from rl4sys.datasets.table import Table
from rl4sys.errors import ConfigError
from rl4sys.spec import Space, Spec

_FORMATS = (".npz", ".csv", ".tsv", ".parquet")


def load_file(config: DatasetConfig, spec: Spec | None = None) -> Dataset:
    """Load the steps of a file or folder. They are checked against ``spec``, or else against ``dataset.action``."""
    table = open_table(Path(config.path))
    action = _action_space(config, spec)
    observations = spec.observation if spec else None
    columns = find_columns(table, config.columns or ColumnsConfig(), observations)
    steps = read_steps(table, columns, observations, action)
    return Dataset(steps.spec, tuple(trajectories(steps)))


def open_table(path: Path) -> Table:
    """Open a file or a folder with recorded steps. Raises `ConfigError` if its format is not supported."""
    if path.is_dir():
        return ParquetTable(path, parquet_files(path))
    if not path.is_file():
        raise ConfigError(
            f"dataset.path is '{path}', which does not exist; give a path relative to the config file or to the "
            f"current directory ({Path.cwd()}), or an absolute path"
        )
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise ConfigError(
            f"the dataset {path} has the format {suffix or 'unknown'}, which is not supported; expected one of "
            f"{', '.join(_FORMATS)}, or a folder of Parquet files. numpy.savez writes arrays to an .npz file"
        )
    if suffix == ".parquet":
        return ParquetTable(path, [path])
    return NpzTable(path) if suffix == ".npz" else CsvTable(path)


def _action_space(config: DatasetConfig, spec: Spec | None) -> Space:
    try:
        action = written_action(config.action)
    except ConfigError as problem:
        raise ConfigError(f"dataset.{problem}") from problem
    action = action or (spec.action if spec else None)
    if action is None:
        raise ConfigError(
            "dataset.action is missing; a file does not contain the action space, and a live system has no environment "
            "to take it from. Set the number of discrete actions, such as action: 4, or a block such as "
            "action: {size: 2, low: -1, high: 1}"
        )
    return action
