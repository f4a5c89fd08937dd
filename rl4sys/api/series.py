"""Sweeps and hyperparameter searches in Python. Writes the same directories as ``rl4sys sweep`` and ``rl4sys tune``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

from rl4sys.api.execution import ROOT, stop_on_interrupt
from rl4sys.api.experiment import read_source
from rl4sys.api.run import RunHandle
from rl4sys.api.runs import RunList
from rl4sys.api.views import html_table, text_table
from rl4sys.config import find, load
from rl4sys.errors import ConfigError
from rl4sys.runs.config import ExperimentConfig
from rl4sys.runs.run import Run
from rl4sys.sweeps.processes import ProcessEngine, available_cores
from rl4sys.sweeps.ranking import BEST, RankedPoint, rank_series, write_ranking
from rl4sys.sweeps.scheduler import TrialScheduler
from rl4sys.sweeps.series import SeriesConfig, SomeConfig, parse_base, parse_series_config
from rl4sys.sweeps.sweep import Sweep, SweepConfig, create_sweep, open_sweep
from rl4sys.sweeps.trials import TrialStatus
from rl4sys.sweeps.tune import Study, TuneConfig, create_study, open_study
from rl4sys.training.progress import LoggingObserver


class SeriesHandle:
    """Sweep or hyperparameter search, with its runs and the ranking of its points.

    >>> import rl4sys
    >>> series = rl4sys.sweep(
    ...     {"base_config": "ppo_cartpole", "sweep": {"algorithm.lr": [1e-3, 1e-2]}},
    ...     progress=False,
    ...     **{"training.total_timesteps": 512},
    ... )
    >>> len(series.runs), sorted(series.best)
    (2, ['algorithm.lr'])
    """

    def __init__(self, source: Sweep | Study) -> None:
        self._source = source

    @property
    def path(self) -> Path:
        """Directory of the series, with one run directory per trial."""
        return self._source.series.path

    @property
    def runs(self) -> RunList:
        """Runs of all started trials, in the order of the trials."""
        series = self._source.series
        paths = [series.run_path(status.trial) for status in self._source.statuses]
        return RunList(RunHandle(Run.open(path)) for path in paths if Run.exists(path))

    @property
    def ranking(self) -> list[RankedPoint]:
        """Points (combinations of settings) with their mean score over seeds, best first."""
        source = self._source
        return rank_series(source.series, source.completed() if isinstance(source, Study) else source.statuses)

    @property
    def best(self) -> dict[str, Any]:
        """Settings of the best point by dotted name, for ``rl4sys.train(base, **series.best)``."""
        ranking = self.ranking
        if not ranking or ranking[0].mean is None:
            raise ConfigError(
                f"no completed trial of {self.path} has a value of the metric {self._source.series.config.metric!r}"
            )
        return dict(ranking[0].changes)

    @property
    def best_config(self) -> Path:
        """Path of the config file with the best settings, for `rl4sys.train`."""
        return self.path / BEST

    @property
    def failures(self) -> dict[str, str]:
        """Error messages of failed trials by the name of the trial directory."""
        return {s.trial.directory: s.message for s in self._source.statuses if s.state == "failed"}

    def resume(self, *, progress: bool = True) -> SeriesHandle:
        """Continue a stopped series with the trials that have not completed."""
        reopened = open_sweep(self.path) if isinstance(self._source, Sweep) else open_study(self.path)
        return conduct(reopened, progress=progress)

    def __repr__(self) -> str:
        headings, rows = self._table()
        return f"{self.path}\n{text_table(headings, rows)}"

    def _repr_html_(self) -> str:
        headings, rows = self._table()
        return html_table(headings, rows, str(self.path))

    def _table(self) -> tuple[list[str], list[list[str]]]:
        ranking, config = self.ranking, self._source.series.config
        keys = list(dict.fromkeys(key for point in ranking for key in point.changes))
        rows = [
            [
                str(place),
                *(f"{point.changes.get(key, '')}" for key in keys),
                "" if point.mean is None else f"{point.mean:.1f}",
                str(len(point.values)),
            ]
            for place, point in enumerate(ranking, 1)
        ]
        return ["place", *keys, config.metric, "seeds"], rows


def sweep(
    config: str | Path | Mapping[str, Any],
    *,
    root: str | Path = ROOT,
    jobs: int | None = None,
    progress: bool = True,
    **settings: Any,
) -> SeriesHandle:
    """Train an experiment with many combinations of settings, and rank the combinations.

    ``config`` is a sweep file, the name of a shipped sweep, or the settings of a sweep as a dict. In a dict,
    ``base_config`` is the experiment: a name, a file, a dict or a typed config. ``jobs`` is the number of parallel
    trials. Other keyword arguments change the settings of the sweep or, by dotted name, of the experiment.

    >>> import rl4sys
    >>> series = rl4sys.sweep(
    ...     {"base_config": "ppo_cartpole", "sweep": {"algorithm.gamma": [0.9, 0.98]}, "seeds": [1, 2]},
    ...     progress=False,
    ...     **{"training.total_timesteps": 512},
    ... )
    >>> len(series.runs)
    4
    """
    parsed, base = _parse(SweepConfig, config, "sweeps", jobs, settings)
    return conduct(create_sweep(Path(root), parsed, base, datetime.now()), progress=progress)


def tune(
    config: str | Path | Mapping[str, Any],
    *,
    root: str | Path = ROOT,
    jobs: int | None = None,
    progress: bool = True,
    **settings: Any,
) -> SeriesHandle:
    """Search for better settings with Optuna. Takes the same arguments as `sweep`, with the config of a study.

    >>> import rl4sys
    >>> found = rl4sys.tune(
    ...     {"base_config": "ppo_cartpole", "search": {"algorithm.lr": {"low": 1e-4, "high": 1e-2, "log": True}}},
    ...     n_trials=2,
    ...     progress=False,
    ...     **{"training.total_timesteps": 512},
    ... )
    >>> sorted(found.best)
    ['algorithm.lr']
    """
    parsed, base = _parse(TuneConfig, config, "studies", jobs, settings)
    return conduct(create_study(Path(root), parsed, base, datetime.now()), progress=progress)


def conduct(source: Sweep | Study, *, progress: bool) -> SeriesHandle:
    """Run the remaining trials of a sweep or study, and write the ranking."""
    series = source.series
    engine = ProcessEngine(min(series.config.parallel_jobs, available_cores()))
    with series.locked(), stop_on_interrupt() as stopping, _board(source, shown=progress) as board:
        TrialScheduler(source, engine, board, series.config.retries).run(stopping)
        handle = SeriesHandle(source)
        write_ranking(series, handle.ranking)
    return handle


class _Silent:
    """Trial observer that shows nothing."""

    def show(self, status: TrialStatus) -> None:
        """Do nothing; the status is also stored in the run directory of the trial."""

    def tick(self) -> None:
        """Do nothing at a display refresh."""


def _board(source: Sweep | Study, *, shown: bool) -> Any:
    if not shown:
        return nullcontext(_Silent())
    from rich.console import Console

    from rl4sys.cli.views.trials import Board

    return Board(Console(), source.series, source.statuses)


def _parse(
    model: type[SomeConfig],
    config: str | Path | Mapping[str, Any],
    group: str,
    jobs: int | None,
    changes: Mapping[str, Any],
) -> tuple[SomeConfig, ExperimentConfig]:
    """Return the config of the series, and the base experiment with the settings that all trials share."""
    note: Callable[[str], None] = LoggingObserver().note
    folder: Path | None = None
    if isinstance(config, Mapping):
        settings = dict(config)
    else:
        file = find(str(config), group=group)
        settings, folder = {"name": file.stem, **load(file, group)}, file.parent
    source = settings.get("base_config")
    if source is None:
        raise ConfigError('base_config is missing; give the experiment, such as {"base_config": "ppo_cartpole", ...}')
    if isinstance(source, str):
        source = find(source, folder)
    base, beside = read_source(source, note)
    label = str(source) if isinstance(source, Path) else str(base.get("experiment", {}).get("name", "experiment"))
    settings = {"name": f"{Path(label).stem}_{_KINDS[model]}", **settings, "base_config": label}
    if jobs is not None:
        settings["parallel_jobs"] = jobs
    parsed = parse_series_config(model, settings, changes)
    return parsed, parse_base(parsed, base, beside)


_KINDS: dict[type[SeriesConfig], str] = {SweepConfig: "sweep", TuneConfig: "study"}
"""Suffix of the default name of a series that is not read from a file."""
