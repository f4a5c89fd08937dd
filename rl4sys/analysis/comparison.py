"""Comparison of groups of runs: results with intervals, probabilities of improvement, and differing settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import TypeAlias

import numpy as np

from rl4sys.analysis.curves import Band, Curve, aggregate, smooth
from rl4sys.analysis.formatting import pluralize
from rl4sys.analysis.groups import Difference, Group, differences
from rl4sys.analysis.metric_catalog import higher_is_better, resolve
from rl4sys.analysis.statistics import STATISTICS, Estimate, estimate, probability_of_improvement
from rl4sys.config import did_you_mean
from rl4sys.errors import ConfigError

_MAX_GROUPS_IN_PAIRS = 6
"""Maximum number of groups for pairwise comparison. A table of more groups would be unreadable."""

_SAME_LENGTH = 0.9
"""Minimum ratio of the length of the shorter to the longer run for which both are treated as equally long."""

Values: TypeAlias = list[list[float]]
"""Metric values of a group: one list per config, with one value per run."""


@dataclass(frozen=True)
class ComparisonOptions:
    """Options: statistic over runs, number of neighboring values averaged in curves, and seed of the bootstrap."""

    statistic: str = "iqm"
    smooth: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.statistic not in STATISTICS:
            known = ", ".join(STATISTICS)
            raise ConfigError(
                f"unknown statistic {self.statistic!r}{did_you_mean(self.statistic, STATISTICS)} Known: {known}."
            )


@dataclass(frozen=True)
class GroupSummary:
    """Results of one group in one metric. `best` is None for a metric without a preferred direction."""

    group: str
    final: Estimate
    best: Estimate | None
    best_at: float | None
    """Median over runs of the step with the best value."""
    last_step: int
    """Largest step at which a run of the group has a value of the metric."""
    band: Band


@dataclass(frozen=True)
class Improvement:
    """Probability that a run of group `better` ends with a better value than a run of group `worse`."""

    better: str
    worse: str
    probability: Estimate


@dataclass(frozen=True)
class MetricComparison:
    """Results of all groups in one metric, and the probabilities of improvement."""

    metric: str
    summaries: tuple[GroupSummary, ...]
    improvements: tuple[Improvement, ...]


@dataclass(frozen=True)
class Comparison:
    """Result of `rl4sys compare`."""

    groups: tuple[Group, ...]
    metrics: tuple[MetricComparison, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    options: ComparisonOptions = field(default_factory=ComparisonOptions)


def compare(groups: Sequence[Group], wanted: Sequence[str], options: ComparisonOptions) -> Comparison:
    """Compare groups by the metrics `wanted`, given as names, patterns or the aliases `reward` and `loss`."""
    runs = [run for group in groups for run in group.runs]
    metrics = resolve(wanted, runs)
    compared = tuple(_compare_metric(groups, metric, options, number) for number, metric in enumerate(metrics))
    return Comparison(
        tuple(groups), compared, tuple(differences(groups)), tuple(_notes(groups, metrics, compared)), options
    )


def _compare_metric(groups: Sequence[Group], metric: str, options: ComparisonOptions, number: int) -> MetricComparison:
    # The result of a group must not depend on the other groups, so each group has its own random generator.
    summaries = [_summarize(group, metric, options, np.random.default_rng([options.seed, number])) for group in groups]
    return MetricComparison(metric, tuple(summaries), tuple(_improvements(groups, metric, options)))


def _summarize(group: Group, metric: str, options: ComparisonOptions, generator: np.random.Generator) -> GroupSummary:
    strata = [[curve for run in stratum if (curve := run.curve(metric))] for stratum in group.strata]
    statistic = STATISTICS[options.statistic]
    highest = higher_is_better(metric)
    best, best_at = None, None
    if highest is not None:
        best = estimate(_values(strata, lambda curve: curve.best(highest=highest)[0]), statistic, generator)
        reached = [curve.best(highest=highest)[1] for stratum in strata for curve in stratum]
        best_at = float(np.median(reached)) if reached else None
    return GroupSummary(
        group=group.label,
        final=estimate(_values(strata, lambda curve: curve.final), statistic, generator),
        best=best,
        best_at=best_at,
        last_step=max((int(curve.steps[-1]) for stratum in strata for curve in stratum), default=0),
        band=aggregate([[smooth(curve, options.smooth) for curve in s] for s in strata], statistic, generator),
    )


def _values(strata: Sequence[Sequence[Curve]], of: Callable[[Curve], float]) -> Values:
    return [[of(curve) for curve in stratum] for stratum in strata]


def _improvements(groups: Sequence[Group], metric: str, options: ComparisonOptions) -> list[Improvement]:
    """Return the probability of improvement for all pairs of groups with more than one run each."""
    highest = higher_is_better(metric)
    if highest is None or len(groups) > _MAX_GROUPS_IN_PAIRS:
        return []
    sign = 1.0 if highest else -1.0
    ends = {g.label: [sign * c.final for run in g.runs if (c := run.curve(metric))] for g in groups}
    return [
        Improvement(a, b, probability_of_improvement(ends[a], ends[b], np.random.default_rng(options.seed)))
        for a, b in permutations(ends, 2)
        if min(len(ends[a]), len(ends[b])) > 1
    ]


def _notes(groups: Sequence[Group], metrics: Sequence[str], compared: Sequence[MetricComparison]) -> list[str]:
    notes = [note for group in groups for note in _notes_on_group(group, metrics)]
    ends = {summary.last_step for metric in compared[:1] for summary in metric.summaries if summary.final.runs}
    if ends and min(ends) < _SAME_LENGTH * max(ends):
        notes.append(
            f"groups end at different steps, from {min(ends):,} to {max(ends):,}: final values are from the last step "
            "of each run"
        )
    return notes


def _notes_on_group(group: Group, metrics: Sequence[str]) -> list[str]:
    notes = []
    for metric in metrics:
        missing = [run.path.name for run in group.runs if run.curve(metric) is None]
        if missing:
            notes.append(f"{group.label}: {metric} is missing in {_list(missing)}")
        not_finite = [run.path.name for run in group.runs if run.dropped(metric)]
        if not_finite:
            notes.append(
                f"{group.label}: {metric} was not finite in some rows of {_list(not_finite)}; these rows are skipped"
            )
    unfinished = [f"{run.path.name} ({run.state})" for run in group.runs if run.state != "completed"]
    if unfinished:
        notes.append(f"{group.label}: these runs are not completed: {_list(unfinished)}")
    return notes + _notes_on_mixture(group, metrics)


def _notes_on_mixture(group: Group, metrics: Sequence[str]) -> list[str]:
    notes = []
    environments = sorted({str(run.setting("environment.name")) for run in group.runs})
    if len(environments) > 1:
        notes.append(
            f"{group.label}: runs in {', '.join(environments)} are combined; their returns may have different scales"
        )
    ends = {run.path.name: int(curve.steps[-1]) for run in group.runs if (curve := run.curve(metrics[0]))}
    if ends and min(ends.values()) < _SAME_LENGTH * max(ends.values()):
        shortest = min(ends, key=lambda name: ends[name])
        notes.append(
            f"{group.label}: the curve ends at step {ends[shortest]:,}, the last step of {shortest}; other runs reach "
            f"step {max(ends.values()):,}"
        )
    return notes


def _list(names: Sequence[str], limit: int = 3) -> str:
    more = f" and {pluralize(len(names) - limit, 'other')}" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
