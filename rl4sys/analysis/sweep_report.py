"""Analysis of a sweep as tables, a chart, JSON and a web page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl4sys.analysis.charts import BANDS, STEPS, Bars, Chart, Line, Panel, style
from rl4sys.analysis.curves import aggregate
from rl4sys.analysis.formatting import MISSING, format_number, format_steps, pluralize
from rl4sys.analysis.groups import format_setting, format_setting_short
from rl4sys.analysis.importance import MIN_RESULTS, Effect, Importance, importance, study_importances
from rl4sys.analysis.markup import Markup, bullets, joined, paragraph, section, table
from rl4sys.analysis.metric_catalog import title, unit
from rl4sys.analysis.page import draw_chart, render
from rl4sys.analysis.statistics import iqm
from rl4sys.analysis.trials import SweepResults, TrialResult, failure_reasons

_MAX_CURVES = 5
_SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class SweepAnalysis:
    """Result of `rl4sys analyze` for a sweep or study."""

    sweep: SweepResults
    importance: Importance | None
    points: tuple[Point, ...]
    """Points of the sweep, best first."""
    optuna_importance: Mapping[str, float]
    """Importance of each setting of a study as computed by Optuna; empty for a sweep."""


@dataclass(frozen=True)
class Point:
    """Trials with the same settings and different seeds."""

    changes: dict[str, str]
    """Values of the changed settings as shortened text, by setting."""
    trials: tuple[TrialResult, ...]

    @property
    def results(self) -> list[float]:
        """Return the scores of the completed trials."""
        return [trial.result for trial in self.trials if trial.state == "completed" and trial.result is not None]

    @property
    def mean(self) -> float | None:
        return float(np.mean(self.results)) if self.results else None


def analyze_sweep(sweep: SweepResults, seed: int = 0) -> SweepAnalysis:
    """Rank the points of a sweep and compute the importance of settings."""
    known = [trial for trial in sweep.completed if trial.result is not None]
    found = importance([trial.changes for trial in known], [float(trial.result or 0.0) for trial in known], seed)
    return SweepAnalysis(sweep, found, tuple(_points(sweep)), study_importances(sweep.path))


def point_headings(analysis: SweepAnalysis) -> list[str]:
    short = [short_name(name, analysis.sweep.settings) for name in analysis.sweep.settings]
    return [*short, "trials", f"{analysis.sweep.summary} {analysis.sweep.metric}", "lowest … highest"]


def point_rows(analysis: SweepAnalysis) -> list[list[str]]:
    """Return a table row per point: settings, number of trials, mean score over seeds, and range of scores."""
    return [
        [
            *(point.changes.get(name, MISSING) for name in analysis.sweep.settings),
            _completed_of_planned(point),
            format_number(point.mean),
            f"{format_number(min(point.results))} … {format_number(max(point.results))}"
            if len(point.results) > 1
            else "",
        ]
        for point in analysis.points
    ]


TRIAL_HEADINGS = ["trial", "state", "settings", "seed", "steps", "result"]


def trial_rows(analysis: SweepAnalysis) -> list[list[str]]:
    """Return a table row per trial, best first."""
    return [
        [
            trial.name,
            trial.state,
            ", ".join(
                f"{short_name(k, analysis.sweep.settings)}={format_setting_short(v)}" for k, v in trial.changes.items()
            ),
            MISSING if trial.seed is None else str(trial.seed),
            format_steps(trial.steps),
            format_number(trial.result),
        ]
        for trial in analysis.sweep.trials
    ]


def importance_headings(analysis: SweepAnalysis) -> list[str]:
    optuna = ["Optuna's share"] if analysis.optuna_importance else []
    return ["setting", "mean result at each value", "share", "p-value", *optuna]


def importance_rows(analysis: SweepAnalysis) -> list[list[str]]:
    if analysis.importance is None:
        return []
    optuna_importance = analysis.optuna_importance
    return [
        [
            effect.setting,
            _means(effect, analysis.sweep),
            f"{effect.share:.0%}",
            f"{effect.chance:.3f}",
            *([f"{optuna_importance.get(effect.setting, 0.0):.0%}"] if optuna_importance else []),
        ]
        for effect in analysis.importance.effects
    ]


def importance_notes(analysis: SweepAnalysis) -> list[str]:
    """Return notes that explain the importance table and list settings without a significant effect."""
    found = analysis.importance
    if found is None:
        completed = len(analysis.sweep.completed)
        return [
            f"The importance of settings is unknown: the sweep has {pluralize(completed, 'completed trial')}, and at "
            f"least {MIN_RESULTS} with different settings and results are needed."
        ]
    notes = [
        "Share: fraction of the variance of the results explained by the setting alone. "
        f"The rest, {found.rest:.0%}, is due to combinations of settings and to chance."
    ]
    if found.seeds is not None:
        notes.append(f"Different seeds with the same settings account for {found.seeds:.0%} of the variance.")
    if analysis.optuna_importance:
        notes.append("Optuna's share (PED-ANOVA): importance of the setting for being among the best trials.")
    if found.ranked:
        notes.append("One result is an outlier, so ranks were analyzed instead of results.")
    insignificant = [effect.setting for effect in found.effects if effect.chance > _SIGNIFICANCE]
    if insignificant:
        notes.append(f"Not significant (p-value above {_SIGNIFICANCE}): {', '.join(insignificant)}.")
    return notes


def failure_rows(analysis: SweepAnalysis) -> list[list[str]]:
    """Return a table row per failure reason, with the number and the names of the failed trials."""
    found = failure_reasons(analysis.sweep.trials)
    return [
        [reason, str(len(names)), ", ".join(names[:6]) + (" …" if len(names) > 6 else "")]
        for reason, names in found.items()
    ]


FAILURE_HEADINGS = ["failure", "trials", "names"]


def count_trials(analysis: SweepAnalysis) -> str:
    """Return the number of trials by state as text."""
    states: dict[str, int] = {}
    for trial in analysis.sweep.trials:
        states[trial.state] = states.get(trial.state, 0) + 1
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    return f"{pluralize(len(analysis.sweep.trials), 'trial')}: {counts}"


def sweep_chart(analysis: SweepAnalysis) -> Chart:
    """Return a chart of the learning curves of the best points, and of the importance of settings."""
    shown = [point for point in analysis.points if point.results][:_MAX_CURVES]
    lines = tuple(_line(number, point, analysis.sweep) for number, point in enumerate(shown))
    metric = analysis.sweep.metric
    panels: list[Panel | Bars] = [Panel(f"{title(metric)}: best points", STEPS, unit(metric), lines)]
    if analysis.importance is not None:
        effects = analysis.importance.effects
        names = tuple(effect.setting for effect in effects)
        panels.append(
            Bars("Importance of settings", "share of the variance of results", names, tuple(e.share for e in effects))
        )
    caption = f"Best {pluralize(len(shown), 'point')} of {len(analysis.points)}."
    if any(line.band.low is not None for line in lines):
        caption += f" {BANDS.format('interquartile mean')}"
    return Chart(analysis.sweep.path.name, tuple(panels), caption)


def to_json(analysis: SweepAnalysis) -> dict[str, Any]:
    found = analysis.importance
    return {
        "sweep": str(analysis.sweep.path),
        "metric": analysis.sweep.metric,
        "summary": analysis.sweep.summary,
        "direction": "maximize" if analysis.sweep.highest else "minimize",
        "trials": [
            {
                "trial": trial.name,
                "status": trial.state,
                "changes": dict(trial.changes),
                "seed": trial.seed,
                "steps": trial.steps,
                "result": trial.result,
                "error": trial.reason or None,
            }
            for trial in analysis.sweep.trials
        ],
        "importance": [vars(effect) for effect in found.effects] if found else None,
        "rest": found.rest if found else None,
        "seeds": found.seeds if found else None,
        "importance_of_optuna": dict(analysis.optuna_importance) or None,
        "failures": failure_reasons(analysis.sweep.trials),
    }


def to_page(analysis: SweepAnalysis) -> str:
    failures = failure_rows(analysis)
    text_columns = len(analysis.sweep.settings)
    return render(
        f"Sweep {analysis.sweep.path.name}",
        f"{count_trials(analysis)}; scored by the {analysis.sweep.summary} {analysis.sweep.metric}",
        section("Curves and importance", draw_chart(sweep_chart(analysis)), _importance(analysis)),
        section("Points, best first", table(point_headings(analysis), point_rows(analysis), text_columns=text_columns)),
        section("Failures", table(FAILURE_HEADINGS, failures)) if failures else Markup(""),
        section("Trials", table(TRIAL_HEADINGS, trial_rows(analysis), text_columns=3)),
    )


def short_name(setting: str, among: Sequence[str]) -> str:
    """Return the last part of a dotted name, or the full name if the last part is ambiguous."""
    short = setting.rpartition(".")[2]
    return short if sum(other.rpartition(".")[2] == short for other in among) == 1 else setting


def _importance(analysis: SweepAnalysis) -> Markup:
    rows = importance_rows(analysis)
    parts = [bullets(importance_notes(analysis))]
    return joined(
        [table(importance_headings(analysis), rows, text_columns=2), *parts]
        if rows
        else [paragraph(importance_notes(analysis)[0])]
    )


def _points(sweep: SweepResults) -> list[Point]:
    by_settings: dict[str, list[TrialResult]] = {}
    for trial in sweep.trials:
        by_settings.setdefault(format_setting(dict(trial.changes)), []).append(trial)
    points = [
        Point({name: format_setting_short(value) for name, value in trials[0].changes.items()}, tuple(trials))
        for trials in by_settings.values()
    ]
    sign = -1.0 if sweep.highest else 1.0
    return sorted(points, key=lambda point: (point.mean is None, sign * (point.mean or 0.0)))


def _completed_of_planned(point: Point) -> str:
    done, planned = len(point.results), len(point.trials)
    return str(done) if done == planned else f"{done} of {planned}"


def _means(effect: Effect, sweep: SweepResults) -> str:
    ordered = sorted(effect.means.items(), key=lambda item: -item[1] if sweep.highest else item[1])
    return ", ".join(f"{value}: {format_number(mean)}" for value, mean in ordered)


def _line(number: int, point: Point, sweep: SweepResults) -> Line:
    label = ", ".join(f"{short_name(name, sweep.settings)}={value}" for name, value in point.changes.items())
    curves = [curve for t in point.trials if t.run and (curve := t.run.curve(sweep.metric))]
    seeds = f" ({pluralize(len(curves), 'seed')})"
    return Line((label or "base config") + seeds, style(number), aggregate([curves], iqm, np.random.default_rng(0)))
