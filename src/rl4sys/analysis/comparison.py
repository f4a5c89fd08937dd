"""Groups of runs side by side: how good, how sure, how likely better, and what was different."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import TypeAlias

import numpy as np

from rl4sys.analysis.curves import Band, Curve, aggregate, smooth
from rl4sys.analysis.groups import Difference, Group, differences
from rl4sys.analysis.metric_names import higher_is_better, resolve
from rl4sys.analysis.statistics import STATISTICS, Estimate, estimate, probability_of_improvement
from rl4sys.analysis.wording import counted
from rl4sys.config import did_you_mean
from rl4sys.errors import ConfigError

_MOST_IMPROVEMENTS = 6
"""With more groups than this nobody reads a table of pairs."""

_AS_LONG = 0.9
"""Runs that come this close to one another in steps are as long as each other: rounds are of different sizes."""

Figures: TypeAlias = list[list[float]]
"""A figure of each run, by config."""


@dataclass(frozen=True)
class Options:
    """How figures are made: the statistic over runs, neighbours averaged in curves, the seed of the bootstrap."""

    statistic: str = "iqm"
    smooth: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.statistic not in STATISTICS:
            known = ", ".join(STATISTICS)
            raise ConfigError(
                f"there is no statistic {self.statistic}{did_you_mean(self.statistic, STATISTICS)} Known: {known}."
            )


@dataclass(frozen=True)
class Summary:
    """One metric of one group. ``best`` is None for what is neither good nor bad."""

    group: str
    final: Estimate
    best: Estimate | None
    best_at: float | None
    """The step of the best value, in the median over runs."""
    last_step: int
    """The last step that any run of the group has the metric for."""
    band: Band


@dataclass(frozen=True)
class Improvement:
    """How likely a run of one group ends better than one of another."""

    better: str
    worse: str
    probability: Estimate


@dataclass(frozen=True)
class MetricComparison:
    """One metric of all groups."""

    metric: str
    summaries: tuple[Summary, ...]
    improvements: tuple[Improvement, ...]


@dataclass(frozen=True)
class Comparison:
    """All that `compare` shows."""

    groups: tuple[Group, ...]
    metrics: tuple[MetricComparison, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    options: Options = field(default_factory=Options)


def compare(groups: Sequence[Group], wanted: Sequence[str], options: Options) -> Comparison:
    """Compare groups by the metrics that ``wanted`` names."""
    runs = [run for group in groups for run in group.runs]
    metrics = resolve(wanted, runs)
    compared = tuple(_compare_metric(groups, metric, options, number) for number, metric in enumerate(metrics))
    return Comparison(
        tuple(groups), compared, tuple(differences(groups)), tuple(_remarks(groups, metrics, compared)), options
    )


def _compare_metric(groups: Sequence[Group], metric: str, options: Options, number: int) -> MetricComparison:
    # Figures of one group must not depend on which others it is compared with.
    summaries = [_summarise(group, metric, options, np.random.default_rng([options.seed, number])) for group in groups]
    return MetricComparison(metric, tuple(summaries), tuple(_improvements(groups, metric, options)))


def _summarise(group: Group, metric: str, options: Options, generator: np.random.Generator) -> Summary:
    strata = [[curve for run in stratum if (curve := run.curve(metric))] for stratum in group.strata]
    statistic = STATISTICS[options.statistic]
    highest = higher_is_better(metric)
    best, best_at = None, None
    if highest is not None:
        best = estimate(_figures(strata, lambda curve: curve.best(highest=highest)[0]), statistic, generator)
        reached = [curve.best(highest=highest)[1] for stratum in strata for curve in stratum]
        best_at = float(np.median(reached)) if reached else None
    return Summary(
        group=group.label,
        final=estimate(_figures(strata, lambda curve: curve.final), statistic, generator),
        best=best,
        best_at=best_at,
        last_step=max((int(curve.steps[-1]) for stratum in strata for curve in stratum), default=0),
        band=aggregate([[smooth(curve, options.smooth) for curve in s] for s in strata], statistic, generator),
    )


def _figures(strata: Sequence[Sequence[Curve]], of: Callable[[Curve], float]) -> Figures:
    return [[of(curve) for curve in stratum] for stratum in strata]


def _improvements(groups: Sequence[Group], metric: str, options: Options) -> list[Improvement]:
    """Every group against every other, where more than one run of each can tell."""
    highest = higher_is_better(metric)
    if highest is None or len(groups) > _MOST_IMPROVEMENTS:
        return []
    sign = 1.0 if highest else -1.0
    ends = {g.label: [sign * c.final for run in g.runs if (c := run.curve(metric))] for g in groups}
    return [
        Improvement(a, b, probability_of_improvement(ends[a], ends[b], np.random.default_rng(options.seed)))
        for a, b in permutations(ends, 2)
        if min(len(ends[a]), len(ends[b])) > 1
    ]


def _remarks(groups: Sequence[Group], metrics: Sequence[str], compared: Sequence[MetricComparison]) -> list[str]:
    remarks = [remark for group in groups for remark in _remarks_on(group, metrics)]
    ends = {summary.last_step for metric in compared[:1] for summary in metric.summaries if summary.final.runs}
    if ends and min(ends) < _AS_LONG * max(ends):
        remarks.append(f"groups end at different steps, from {min(ends):,} to {max(ends):,}: final is where each ended")
    return remarks


def _remarks_on(group: Group, metrics: Sequence[str]) -> list[str]:
    remarks = []
    for metric in metrics:
        lacking = [run.path.name for run in group.runs if run.curve(metric) is None]
        if lacking:
            remarks.append(f"{group.label}: no {metric} in {_some(lacking)}")
        odd = [run.path.name for run in group.runs if run.dropped(metric)]
        if odd:
            remarks.append(f"{group.label}: {metric} was not a finite number at times in {_some(odd)}; left out there")
    unfinished = [f"{run.path.name} ({run.state})" for run in group.runs if run.state != "completed"]
    if unfinished:
        remarks.append(f"{group.label}: not completed: {_some(unfinished)}")
    return remarks + _remarks_on_mixture(group, metrics)


def _remarks_on_mixture(group: Group, metrics: Sequence[str]) -> list[str]:
    remarks = []
    environments = sorted({str(run.setting("environment.name")) for run in group.runs})
    if len(environments) > 1:
        remarks.append(f"{group.label}: runs in {', '.join(environments)} are put together; their scales may differ")
    ends = {run.path.name: int(curve.steps[-1]) for run in group.runs if (curve := run.curve(metrics[0]))}
    if ends and min(ends.values()) < _AS_LONG * max(ends.values()):
        shortest = min(ends, key=lambda name: ends[name])
        remarks.append(
            f"{group.label}: its curve ends at step {ends[shortest]:,}, where {shortest} ends; others reach "
            f"{max(ends.values()):,}"
        )
    return remarks


def _some(names: Sequence[str], most: int = 3) -> str:
    more = f" and {counted(len(names) - most, 'other')}" if len(names) > most else ""
    return ", ".join(names[:most]) + more
