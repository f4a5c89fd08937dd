"""The analysis of a sweep as rows to print, as a chart, as JSON and as a web page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl4sys.analysis.charts import BANDS, STEPS, Bars, Chart, Line, Panel, style
from rl4sys.analysis.curves import aggregate
from rl4sys.analysis.groups import in_short, in_words
from rl4sys.analysis.importance import FEWEST, Effect, Importance, importance
from rl4sys.analysis.markup import Markup, bullets, joined, paragraph, section, table
from rl4sys.analysis.metric_names import title, unit
from rl4sys.analysis.page import draw_chart, render
from rl4sys.analysis.statistics import iqm
from rl4sys.analysis.study import study_importances
from rl4sys.analysis.trials import Sweep, TrialResult, reasons
from rl4sys.analysis.wording import NOTHING, counted, figure, steps

_CURVES = 5
_LIKELY_CHANCE = 0.05


@dataclass(frozen=True)
class SweepAnalysis:
    """All that `analyze` shows of a sweep."""

    sweep: Sweep
    importance: Importance | None
    points: tuple[Point, ...]
    """Best first."""
    of_optuna: Mapping[str, float]
    """The shares of the settings of a study as Optuna measures them; empty for a sweep."""


@dataclass(frozen=True)
class Point:
    """Trials of the same settings, which differ by their seed."""

    changes: dict[str, str]
    """In short."""
    trials: tuple[TrialResult, ...]

    @property
    def results(self) -> list[float]:
        """Of the completed trials."""
        return [trial.result for trial in self.trials if trial.state == "completed" and trial.result is not None]

    @property
    def mean(self) -> float | None:
        return float(np.mean(self.results)) if self.results else None


def analyse_sweep(sweep: Sweep, seed: int = 0) -> SweepAnalysis:
    """Which settings did best, and which of them mattered."""
    known = [trial for trial in sweep.completed if trial.result is not None]
    found = importance([trial.changes for trial in known], [float(trial.result or 0.0) for trial in known], seed)
    return SweepAnalysis(sweep, found, tuple(_points(sweep)), study_importances(sweep.path))


def point_headings(analysis: SweepAnalysis) -> list[str]:
    short = [short_name(name, analysis.sweep.settings) for name in analysis.sweep.settings]
    return [*short, "trials", f"{analysis.sweep.summary} {analysis.sweep.metric}", "lowest … highest"]


def point_rows(analysis: SweepAnalysis) -> list[list[str]]:
    """Settings and what they came to, seeds taken together."""
    return [
        [
            *(point.changes.get(name, NOTHING) for name in analysis.sweep.settings),
            _done(point),
            figure(point.mean),
            f"{figure(min(point.results))} … {figure(max(point.results))}" if len(point.results) > 1 else "",
        ]
        for point in analysis.points
    ]


TRIAL_HEADINGS = ["trial", "state", "settings", "seed", "steps", "result"]


def trial_rows(analysis: SweepAnalysis) -> list[list[str]]:
    """Every trial, best first."""
    return [
        [
            trial.name,
            trial.state,
            ", ".join(f"{short_name(k, analysis.sweep.settings)}={in_short(v)}" for k, v in trial.changes.items()),
            NOTHING if trial.seed is None else str(trial.seed),
            steps(trial.steps),
            figure(trial.result),
        ]
        for trial in analysis.sweep.trials
    ]


def importance_headings(analysis: SweepAnalysis) -> list[str]:
    optuna = ["Optuna's share"] if analysis.of_optuna else []
    return ["setting", "mean result at each value", "share", "by chance", *optuna]


def importance_rows(analysis: SweepAnalysis) -> list[list[str]]:
    if analysis.importance is None:
        return []
    of_optuna = analysis.of_optuna
    return [
        [
            effect.setting,
            _means(effect, analysis.sweep),
            f"{effect.share:.0%}",
            f"{effect.chance:.3f}",
            *([f"{of_optuna.get(effect.setting, 0.0):.0%}"] if of_optuna else []),
        ]
        for effect in analysis.importance.effects
    ]


def importance_in_words(analysis: SweepAnalysis) -> list[str]:
    """What the shares mean, and what they leave open."""
    found = analysis.importance
    if found is None:
        completed = len(analysis.sweep.completed)
        return [
            f"Which settings matter cannot be said: {counted(completed, 'completed trial')}, and at least {FEWEST} "
            "that differ in settings and results are needed."
        ]
    words = [f"Share: of the variance of the results, what the setting alone explains. The rest, {found.rest:.0%}, is"]
    words[0] += " combinations of settings, and chance."
    if found.seeds is not None:
        words.append(f"Between seeds of the same settings lies {found.seeds:.0%} of the variance.")
    if analysis.of_optuna:
        words.append("Optuna's share (PED-ANOVA): which settings set the best trials apart from the others.")
    if found.ranked:
        words.append("One result lies so far from the others that places in their order were taken instead of results.")
    doubtful = [effect.setting for effect in found.effects if effect.chance > _LIKELY_CHANCE]
    if doubtful:
        words.append(f"May well be chance (by chance above {_LIKELY_CHANCE}): {', '.join(doubtful)}.")
    return words


def failure_rows(analysis: SweepAnalysis) -> list[list[str]]:
    """Reasons, how often, and in which trials."""
    found = reasons(analysis.sweep.trials)
    return [
        [reason, str(len(names)), ", ".join(names[:6]) + (" …" if len(names) > 6 else "")]
        for reason, names in found.items()
    ]


FAILURE_HEADINGS = ["failed because", "trials", "which"]


def outline(analysis: SweepAnalysis) -> str:
    """How many trials came how far."""
    states: dict[str, int] = {}
    for trial in analysis.sweep.trials:
        states[trial.state] = states.get(trial.state, 0) + 1
    told = ", ".join(f"{count} {state}" for state, count in states.items())
    return f"{counted(len(analysis.sweep.trials), 'trial')}: {told}"


def sweep_chart(analysis: SweepAnalysis) -> Chart:
    """The curves of the best points, and the shares of the settings."""
    shown = [point for point in analysis.points if point.results][:_CURVES]
    lines = tuple(_line(number, point, analysis.sweep) for number, point in enumerate(shown))
    metric = analysis.sweep.metric
    panels: list[Panel | Bars] = [Panel(f"{title(metric)}: the best points", STEPS, unit(metric), lines)]
    if analysis.importance is not None:
        effects = analysis.importance.effects
        names = tuple(effect.setting for effect in effects)
        panels.append(
            Bars("Which settings mattered", "share of the variance of results", names, tuple(e.share for e in effects))
        )
    caption = f"The best {counted(len(shown), 'point')} of {len(analysis.points)}."
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
        "importance_of_optuna": dict(analysis.of_optuna) or None,
        "failures": reasons(analysis.sweep.trials),
    }


def to_page(analysis: SweepAnalysis) -> str:
    failures = failure_rows(analysis)
    words = len(analysis.sweep.settings)
    return render(
        f"Sweep {analysis.sweep.path.name}",
        f"{outline(analysis)}; judged by the {analysis.sweep.summary} {analysis.sweep.metric}",
        section("Curves and importance", draw_chart(sweep_chart(analysis)), _importance(analysis)),
        section("Points, best first", table(point_headings(analysis), point_rows(analysis), words=words)),
        section("Failures", table(FAILURE_HEADINGS, failures)) if failures else Markup(""),
        section("Trials", table(TRIAL_HEADINGS, trial_rows(analysis), words=3)),
    )


def short_name(setting: str, among: Sequence[str]) -> str:
    """The last part of a dotted name, where no other setting has the same."""
    short = setting.rpartition(".")[2]
    return short if sum(other.rpartition(".")[2] == short for other in among) == 1 else setting


def _importance(analysis: SweepAnalysis) -> Markup:
    rows = importance_rows(analysis)
    parts = [bullets(importance_in_words(analysis))]
    return joined(
        [table(importance_headings(analysis), rows, words=2), *parts]
        if rows
        else [paragraph(importance_in_words(analysis)[0])]
    )


def _points(sweep: Sweep) -> list[Point]:
    together: dict[str, list[TrialResult]] = {}
    for trial in sweep.trials:
        together.setdefault(in_words(dict(trial.changes)), []).append(trial)
    points = [
        Point({name: in_short(value) for name, value in trials[0].changes.items()}, tuple(trials))
        for trials in together.values()
    ]
    sign = -1.0 if sweep.highest else 1.0
    return sorted(points, key=lambda point: (point.mean is None, sign * (point.mean or 0.0)))


def _done(point: Point) -> str:
    done, planned = len(point.results), len(point.trials)
    return str(done) if done == planned else f"{done} of {planned}"


def _means(effect: Effect, sweep: Sweep) -> str:
    ordered = sorted(effect.means.items(), key=lambda item: -item[1] if sweep.highest else item[1])
    return ", ".join(f"{value}: {figure(mean)}" for value, mean in ordered)


def _line(number: int, point: Point, sweep: Sweep) -> Line:
    label = ", ".join(f"{short_name(name, sweep.settings)}={value}" for name, value in point.changes.items())
    curves = [curve for t in point.trials if t.run and (curve := t.run.curve(sweep.metric))]
    seeds = f" ({counted(len(curves), 'seed')})"
    return Line((label or "as it is") + seeds, style(number), aggregate([curves], iqm, np.random.default_rng(0)))
