"""A study in two pictures: how the best value rose, and which settings made the difference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rl4sys.analysis.charts import COLOURS, Bars, Chart
from rl4sys.analysis.metric_names import title, unit
from rl4sys.analysis.plots import draw, save
from rl4sys.lab.study import history
from rl4sys.lab.tune import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HISTORY, IMPORTANCE = "history.png", "importance.png"
_LEAST_VALUES = 2


def draw_study(study: Study) -> list[Path]:
    """The files that were written; importance only where enough trials were completed to tell."""
    path = study.series.path
    save(lambda: _history(study), path / HISTORY)
    found = study.memory.importances()
    if len(found) < _LEAST_VALUES:
        return [path / HISTORY]
    metric = study.settings.row_name
    bars = Bars(
        f"Share of the differences in {title(metric).lower()}",
        "importance (PED-ANOVA)",
        tuple(found),
        tuple(found.values()),
    )
    draw(Chart(path.name, (bars,), f"Over {study.finished} trials of {path.name}."), path / IMPORTANCE)
    return [path / HISTORY, path / IMPORTANCE]


def _history(study: Study) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    trials, settings = study.memory.trials, study.settings
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    completed = [(trial.number, trial.value) for trial in trials if trial.state.name == "COMPLETE"]
    pruned = [
        (t.number, t.intermediate_values[t.last_step]) for t in trials if t.state.name == "PRUNED" and t.last_step
    ]
    best = list(history(trials, settings.direction))
    best.append((trials[-1].number, best[-1][1]))
    axes.step(*zip(*best, strict=True), where="post", color=COLOURS[0], label="best so far")
    axes.plot(*zip(*completed, strict=True), "o", color=COLOURS[1], label="completed")
    if pruned:
        axes.plot(*zip(*pruned, strict=True), "x", color=COLOURS[2], label="stopped early, at its last evaluation")
    axes.set_title(f"{title(settings.row_name)} by trial")
    axes.set_xlabel("trial")
    axes.set_ylabel(unit(settings.row_name))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(color="0.88", linewidth=0.7)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure
