"""Score of a trial, used by the ranking of sweeps and studies and by the analysis of their directories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rl4sys.metric_names import REWARD, reward_metric
from rl4sys.runs.directory import RunDirectory, file_stamp


@dataclass(frozen=True)
class TrialScoring:
    """Metric and summary that determine the score of a trial. All trials of a sweep or study use the same."""

    metric: str
    """Name of the metric in metrics.jsonl."""
    summary: str = "final"
    """Summary of the values of the metric: final, best or mean."""
    maximize: bool = True

    def score(self, run: RunDirectory) -> float | None:
        """Return the score of a run, or None if the metric has no values or the score is not finite."""
        values = run.metric_values(self.metric)
        score = self._summarize(values) if values else math.nan
        return score if math.isfinite(score) else None

    def _summarize(self, values: Sequence[float]) -> float:
        if self.summary == "mean":
            return sum(values) / len(values)
        if self.summary == "best":
            finite = [value for value in values if math.isfinite(value)] or [math.nan]
            return max(finite) if self.maximize else min(finite)
        return values[-1]


def choose_scoring(runs: Sequence[RunDirectory], metric: str, summary: str, direction: str) -> TrialScoring:
    """Choose one scoring for all `runs`, so that their scores are comparable."""
    name = reward_metric(runs, has_metric) if metric == REWARD else metric
    return TrialScoring(name, summary, direction == "maximize")


def has_metric(run: RunDirectory, name: str) -> bool:
    """Return whether a run has a finite value of a metric."""
    try:
        return _has_finite_value(run.path, name, *file_stamp(run.metrics))
    except FileNotFoundError:
        return False


@lru_cache(maxsize=65536)
def _has_finite_value(path: Path, name: str, *_stamp: int) -> bool:
    return any(map(math.isfinite, RunDirectory(path).metric_values(name)))
