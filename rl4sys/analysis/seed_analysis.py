"""Analysis of runs that differ only in the seed: results over seeds, reached returns, spread and outliers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rl4sys.analysis.comparison import Comparison, ComparisonOptions, compare
from rl4sys.analysis.formatting import format_number, pluralize
from rl4sys.analysis.groups import Group, group_runs
from rl4sys.analysis.history import History
from rl4sys.analysis.run_analysis import Remark, RunAnalysis, analyze_run
from rl4sys.errors import RunError
from rl4sys.metric_names import REWARD

_MIN_SEEDS = 5
"""Number of seeds below which the analysis suggests more seeds."""
_MIN_SEEDS_FOR_OUTLIERS = 4
_OUTLIER = 3.5 * 1.4826
"""Distance from the median beyond which a result is an outlier, in median absolute deviations."""
_WIDE = 0.25
"""Smallest spread of the final returns to report, as a fraction of the range of all returns of the runs."""
_MIN_OUTLIER = 0.1
"""Smallest distance from the median to report as an outlier, as a fraction of the range of all returns."""


@dataclass(frozen=True)
class Reached:
    """Return of interest, the number of seeds that reached it, and their median first step; None if none did."""

    name: str
    value: float
    seeds: int
    step: float | None


@dataclass(frozen=True)
class SeedAnalysis:
    """Result of `rl4sys analyze` for several seeds. Remarks are sorted by kind, problems first."""

    comparison: Comparison
    """Comparison of one group with all runs, in the return."""
    runs: tuple[RunAnalysis, ...]
    reached: tuple[Reached, ...]
    remarks: tuple[Remark, ...]

    @property
    def group(self) -> Group:
        return self.comparison.groups[0]

    @property
    def metric(self) -> str:
        return self.comparison.metrics[0].metric


def analyze_seeds(runs: Sequence[History], thresholds: Sequence[float] = ()) -> SeedAnalysis:
    """Analyze runs with the same settings except the seed. Raises `RunError` if other settings differ."""
    group = _single_group(runs)
    comparison = compare([group], [REWARD], ComparisonOptions())
    analyses = tuple(analyze_run(run, thresholds) for run in group.runs)
    remarks = [
        *(Remark("hint", f"{note}.") for note in comparison.notes),
        *_remarks_on_seeds(group),
        *_remarks_on_spread(analyses),
    ]
    order = ("problem", "hint", "good")
    remarks.sort(key=lambda remark: order.index(remark.kind))
    return SeedAnalysis(comparison, analyses, tuple(_reached(analyses)), tuple(remarks))


def name_seed(run: History) -> str:
    """Return a short name of a run among runs of other seeds."""
    return run.path.name if run.seed is None else f"seed {run.seed}"


def _single_group(runs: Sequence[History]) -> Group:
    groups = group_runs([("", runs)])
    if len(groups) == 1:
        return groups[0]
    if not groups:
        raise RunError("none of the selected runs can be read; `rl4sys list` shows all runs")
    labels = ", ".join(f"{group.label} ({pluralize(len(group.runs), 'run')})" for group in groups[:3])
    raise RunError(
        f"these runs belong to {len(groups)} experiments or have different settings: {labels}"
        f"{', …' if len(groups) > 3 else ''}; analyze takes runs that differ only in the seed. "
        "Give the runs of one of them, or use rl4sys compare"
    )


def _reached(analyses: Sequence[RunAnalysis]) -> list[Reached]:
    """Return thresholds and the solved return with the seeds that reached them."""
    steps: dict[tuple[str, float], list[int]] = {}
    for analysis in analyses:
        for milestone in analysis.milestones:
            if milestone.name in ("threshold", "solved"):
                found = steps.setdefault((milestone.name, milestone.value), [])
                found += [] if milestone.step is None else [milestone.step]
    return [
        Reached(name, value, len(found), float(np.median(found)) if found else None)
        for (name, value), found in steps.items()
    ]


def _remarks_on_seeds(group: Group) -> list[Remark]:
    remarks = []
    seeds = [run.seed for run in group.runs if run.seed is not None]
    repeated = [str(seed) for seed in dict.fromkeys(seeds) if seeds.count(seed) > 1]
    if repeated:
        text = f"Several runs have the same seed ({', '.join(repeated)}): they are not independent, and the interval is"
        remarks.append(Remark("problem", f"{text} too narrow."))
    if 1 < len(group.runs) < _MIN_SEEDS:
        text = (
            f"The interval of {len(group.runs)} seeds is close to their range; {_MIN_SEEDS} or more seeds give a more"
        )
        remarks.append(Remark("hint", f"{text} reliable interval."))
    return remarks


def _remarks_on_spread(analyses: Sequence[RunAnalysis]) -> list[Remark]:
    """Return remarks on the range of the final returns and on outliers."""
    found = [(analysis.run, analysis.curve) for analysis in analyses if analysis.curve is not None]
    if len(found) < 2 or len({analysis.metric for analysis in analyses}) > 1:
        return []
    extent = float(np.ptp(np.concatenate([curve.values for _, curve in found])))
    ended = sorted(((curve.final, name_seed(run)) for run, curve in found), key=lambda end: end[0])
    return [_remark_on_range(ended, extent), *_remarks_on_outliers(ended, extent)]


def _remark_on_range(ended: Sequence[tuple[float, str]], extent: float) -> Remark:
    (low, lowest), (high, highest) = ended[0], ended[-1]
    if high - low <= _WIDE * extent:
        return Remark("good", f"The seeds ended close together: from {format_number(low)} to {format_number(high)}.")
    return Remark(
        "hint",
        f"The seeds ended far apart: from {format_number(low)} ({lowest}) to {format_number(high)} ({highest}), "
        f"{(high - low) / extent:.0%} of the range of their returns.",
    )


def _remarks_on_outliers(ended: Sequence[tuple[float, str]], extent: float) -> list[Remark]:
    """Return a remark per run that ended far from the median, by the median absolute deviation of the final returns."""
    if len(ended) < _MIN_SEEDS_FOR_OUTLIERS:
        return []
    values = np.array([value for value, _ in ended])
    middle = float(np.median(values))
    deviation = float(np.median(np.abs(values - middle)))
    limit = max(_OUTLIER * deviation, _MIN_OUTLIER * extent)
    return [
        Remark(
            "hint",
            f"Outlier: {name} ended at {format_number(value)}; the median of the seeds is {format_number(middle)}.",
        )
        for value, name in ended
        if abs(value - middle) > limit
    ]
