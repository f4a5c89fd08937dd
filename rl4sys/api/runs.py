"""Functions that load, search and compare runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rl4sys.analysis.charts import comparison_chart
from rl4sys.analysis.comparison import Comparison, ComparisonOptions
from rl4sys.analysis.comparison import compare as compare_groups
from rl4sys.analysis.comparison_report import summary_headings, summary_rows, to_json, to_page
from rl4sys.analysis.comparison_table import format_comparison, table_format
from rl4sys.analysis.groups import group_runs
from rl4sys.analysis.history import History, open_history
from rl4sys.analysis.page import write_page
from rl4sys.analysis.selection import select_runs
from rl4sys.api.execution import ROOT
from rl4sys.api.run import RunHandle
from rl4sys.api.views import Plot, html_table, text_table
from rl4sys.errors import ConfigError, RunError
from rl4sys.runs.query import Filter, filter_runs, find_run, sort_runs
from rl4sys.runs.run import Run
from rl4sys.runs.store import RunStore
from rl4sys.runs.summary import RunSummary

_HEADINGS = ["run", "algorithm", "environment", "seed", "status", "steps", "reward"]


class RunList(list[RunHandle]):
    """List of runs, displayed as a table.

    >>> import rl4sys
    >>> runs = rl4sys.train("ppo_cartpole", seed=[1, 2], total_timesteps=512, progress=False)
    >>> [run.seed for run in runs]
    [1, 2]
    """

    def compare(self, *, by: str = "config", metrics: Sequence[str] = ("reward",)) -> RunComparison:
        """Compare the runs. By default, runs with equal settings except the seed form a group."""
        return compare(self, by=by, metrics=metrics)

    def __repr__(self) -> str:
        return text_table(_HEADINGS, self._rows()) if self else "no runs"

    def _repr_html_(self) -> str:
        return html_table(_HEADINGS, self._rows())

    def _rows(self) -> list[list[str]]:
        return [_row(run.summary) for run in self]


class RunComparison:
    """Comparison of groups of runs: results with confidence intervals, curves and settings that differ.

    >>> import rl4sys
    >>> runs = rl4sys.train("ppo_cartpole", seed=[1, 2], total_timesteps=512, progress=False)
    >>> rl4sys.compare(runs).to_dict()["statistic"]
    'iqm'
    """

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    def plot(self) -> Plot:
        """Return the learning curves of all groups."""
        return Plot(comparison_chart(self._comparison))

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as a dict with the content that ``rl4sys compare --json`` prints."""
        return to_json(self._comparison)

    def save_html(self, path: str | Path) -> Path:
        """Write the comparison to an HTML report and return its path."""
        write_page(to_page(self._comparison), Path(path))
        return Path(path)

    def to_latex(self) -> str:
        r"""Return the results as a LaTeX table with one row per group and metric; it needs the package booktabs.

        >>> import rl4sys
        >>> runs = rl4sys.train("ppo_cartpole", seed=[1, 2], total_timesteps=512, progress=False)
        >>> print(rl4sys.compare(runs).to_latex())
        % \usepackage{booktabs}
        \begin{tabular}{lrrrrr}
        \toprule
        group & seeds & final IQM [95\%] & best IQM [95\%] & reached at & steps \\
        \midrule
        ppo\_cartpole & 2 & ...
        """
        return format_comparison(self._comparison, "latex")

    def to_markdown(self) -> str:
        """Return the results as a Markdown table with one row per group and metric.

        >>> import rl4sys
        >>> runs = rl4sys.train("ppo_cartpole", seed=[1, 2], total_timesteps=512, progress=False)
        >>> print(rl4sys.compare(runs, statistic="mean").to_markdown())
        | group | seeds | final mean [95%] | best mean [95%] | reached at | steps |
        | --- | ---: | ---: | ---: | ---: | ---: |
        | ppo_cartpole | 2 | ...
        """
        return format_comparison(self._comparison, "md")

    def to_csv(self) -> str:
        """Return the results as CSV with one row per group and metric, and unrounded values.

        >>> import rl4sys
        >>> runs = rl4sys.train("ppo_cartpole", seed=[1, 2], total_timesteps=512, progress=False)
        >>> rl4sys.compare(runs).to_csv().splitlines()[0]
        'group,metric,seeds,statistic,final,final_low,final_high,best,best_low,best_high,best_at,steps'
        """
        return format_comparison(self._comparison, "csv")

    def export(self, path: str | Path) -> Path:
        """Write the results to a table file that ends in .tex, .md, .csv or .json, and return its path.

        >>> import rl4sys
        >>> runs = rl4sys.train("ppo_cartpole", seed=[1, 2], total_timesteps=512, progress=False)
        >>> rl4sys.compare(runs).export("results.tex").name
        'results.tex'
        """
        write_page(format_comparison(self._comparison, table_format(Path(path))), Path(path))
        return Path(path)

    def __repr__(self) -> str:
        return "\n\n".join(
            f"{compared.metric}\n{text_table(summary_headings(self._comparison, compared), summary_rows(compared))}"
            for compared in self._comparison.metrics
        )

    def _repr_html_(self) -> str:
        return "".join(
            html_table(summary_headings(self._comparison, compared), summary_rows(compared), compared.metric)
            for compared in self._comparison.metrics
        )


def load_run(run: str | Path, *, root: str | Path = ROOT) -> RunHandle:
    """Open a run by its directory, or by its id, its name or a unique prefix of one below ``root``.

    >>> import rl4sys
    >>> trained = rl4sys.train("ppo_cartpole", total_timesteps=512, progress=False)
    >>> rl4sys.load_run(trained.id).path == trained.path
    True
    """
    return RunHandle(Run.open(find_run(str(run), Path(root))))


def find_runs(
    *filters: str, best: int | None = None, sort: str | None = None, root: str | Path = ROOT, **properties: Any
) -> RunList:
    """Return the runs below ``root`` that match all filters, oldest first, or the ``best`` runs by reward.

    A filter is a string such as "reward>200", or a keyword argument with a property or the dotted name of a setting:
    ``find_runs(algorithm="ppo", **{"algorithm.lr": 1e-3})``. The properties are the same as for ``rl4sys list``.

    >>> import rl4sys
    >>> run = rl4sys.train("ppo_cartpole", total_timesteps=512, progress=False)
    >>> len(rl4sys.find_runs("steps>=512", algorithm="ppo", best=1))
    1
    """
    if best is not None and best < 1:
        raise ConfigError(f"best is {best}; expected at least 1")
    conditions = [*map(Filter.parse, filters), *(Filter(key, "=", str(value)) for key, value in properties.items())]
    found = filter_runs(RunStore(Path(root)).runs(), conditions)
    key = sort or ("reward" if best is not None else None)
    if key is not None:
        found = sort_runs(found, key)
    return RunList(RunHandle(Run.open(run.path)) for run in found[:best])


def compare(
    *runs: str | Path | RunHandle | Iterable[RunHandle],
    by: str = "config",
    metrics: Sequence[str] = ("reward",),
    statistic: str = "iqm",
    smooth: int = 1,
    seed: int = 0,
    root: str | Path = ROOT,
) -> RunComparison:
    """Compare runs. Each argument is a run, a list of runs, or a string that selects runs as in ``rl4sys compare``.

    >>> import rl4sys
    >>> a = rl4sys.train("ppo_cartpole", total_timesteps=512, progress=False)
    >>> b = rl4sys.train("ppo_cartpole", total_timesteps=512, progress=False, **{"algorithm.lr": 1e-2})
    >>> rl4sys.compare(a, b).plot()
    Plot('CartPole-v1', 2 lines; save(path) writes it to a file)
    """
    if not runs:
        raise ConfigError("compare() needs at least one run, such as compare(run_a, run_b)")
    chosen = [selected for one in runs for selected in _select(one, Path(root))]
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    return RunComparison(compare_groups(group_runs(chosen, by), names, ComparisonOptions(statistic, smooth, seed)))


def _select(given: str | Path | RunHandle | Iterable[RunHandle], root: Path) -> list[tuple[str, list[History]]]:
    if isinstance(given, RunHandle):
        return [(given.path.name, [open_history(given.path)])]
    if isinstance(given, str | Path):
        return select_runs([str(given)], root).chosen
    handles = list(given) if isinstance(given, Iterable) else []
    if not handles or not all(isinstance(handle, RunHandle) for handle in handles):
        raise RunError(f"cannot compare {given!r:.80}; expected a run, a list of runs, or the name of a run")
    return [(handles[0].config.experiment.name, [open_history(handle.path) for handle in handles])]


def _row(found: RunSummary) -> list[str]:
    reward = "" if found.reward is None else f"{found.reward:.1f}"
    return [
        found.path.name,
        found.algorithm,
        found.environment,
        str(found.seed),
        found.status,
        f"{found.steps:,}",
        reward,
    ]
