"""Plots of a study: best value by trial, and importance of each setting."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rl4sys.analysis.charts import COLORS, Bars, Chart
from rl4sys.analysis.metric_catalog import title, unit
from rl4sys.analysis.plots import draw, save
from rl4sys.sweeps.optuna_study import best_so_far
from rl4sys.sweeps.tune import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HISTORY, IMPORTANCE = "history.png", "importance.png"
_MIN_SETTINGS = 2


def draw_study(study: Study) -> list[Path]:
    """Draw the plots of a study and return their paths. Importance is plotted only for two or more settings."""
    path = study.series.path
    save(lambda: _history_figure(study), path / HISTORY)
    found = study.optuna_study.importances()
    if len(found) < _MIN_SETTINGS:
        return [path / HISTORY]
    metric = study.config.row_name
    bars = Bars(
        f"Share of the differences in {title(metric).lower()}",
        "importance (PED-ANOVA)",
        tuple(found),
        tuple(found.values()),
    )
    draw(Chart(path.name, (bars,), f"Over {study.finished_count} trials of {path.name}."), path / IMPORTANCE)
    return [path / HISTORY, path / IMPORTANCE]


def _history_figure(study: Study) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    trials, config = study.optuna_study.trials, study.config
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    completed = [(trial.number, trial.value) for trial in trials if trial.state.name == "COMPLETE"]
    pruned = [
        (t.number, t.intermediate_values[t.last_step]) for t in trials if t.state.name == "PRUNED" and t.last_step
    ]
    best = list(best_so_far(trials, config.direction))
    best.append((trials[-1].number, best[-1][1]))
    axes.step(*zip(*best, strict=True), where="post", color=COLORS[0], label="best so far")
    axes.plot(*zip(*completed, strict=True), "o", color=COLORS[1], label="completed")
    if pruned:
        axes.plot(*zip(*pruned, strict=True), "x", color=COLORS[2], label="stopped early, at its last evaluation")
    axes.set_title(f"{title(config.row_name)} by trial")
    axes.set_xlabel("trial")
    axes.set_ylabel(unit(config.row_name))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(color="0.88", linewidth=0.7)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure
