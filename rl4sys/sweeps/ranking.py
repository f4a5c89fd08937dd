"""Rank the points of a series by their mean score over seeds, and write the config of the best point."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from rl4sys.config import to_yaml
from rl4sys.runs.files import replace_file
from rl4sys.runs.series_files import RANKING
from rl4sys.sweeps.series import Series
from rl4sys.sweeps.trials import Trial, TrialStatus

BEST = "best.yaml"


@dataclass(frozen=True)
class RankedPoint:
    """Point with the scores of its completed trials."""

    point: int
    changes: Mapping[str, Any]
    mean: float | None
    """Mean score over seeds; None if no completed trial has a score."""
    deviation: float | None
    """Standard deviation of the scores over seeds; None with fewer than two scores."""
    values: Mapping[int, float]
    """Scores by seed."""
    failed: int


def rank_series(series: Series, statuses: Iterable[TrialStatus]) -> list[RankedPoint]:
    """Rank the points of a series. All trials are scored by the same metric, as in `rl4sys analyze`."""
    return rank(series.rescore(statuses), series.config.direction)


def rank(statuses: Iterable[TrialStatus], direction: str) -> list[RankedPoint]:
    """Rank points by their mean score, best first; points without a score come last."""
    by_point = groupby(sorted(statuses, key=lambda s: s.trial.number), key=lambda s: s.trial.point)
    points = [_aggregate(list(members)) for _, members in by_point]
    sign = -1 if direction == "maximize" else 1
    return sorted(points, key=lambda p: (p.mean is None, 0.0 if p.mean is None else sign * p.mean, p.point))


def _aggregate(members: Sequence[TrialStatus]) -> RankedPoint:
    trial = members[0].trial
    values = {s.trial.seed: s.value for s in members if s.state == "completed" and _is_number(s.value)}
    known = [value for value in values.values() if value is not None]
    return RankedPoint(
        trial.point,
        trial.changes,
        statistics.fmean(known) if known else None,
        statistics.stdev(known) if len(known) > 1 else None,
        {seed: value for seed, value in values.items() if value is not None},
        sum(s.state == "failed" for s in members),
    )


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def write_ranking(series: Series, ranking: Sequence[RankedPoint]) -> None:
    replace_file(series.path / RANKING, json.dumps([asdict(ranked) for ranked in ranking], indent=1).encode())
    if ranking and ranking[0].mean is not None:
        write_best(series, ranking[0])


def write_best(series: Series, best: RankedPoint) -> None:
    """Write the config of the best point as a file for ``rl4sys train``."""
    seed = next(iter(best.values))
    config = series.trial_config(Trial(0, best.point, seed, best.changes))
    settings = config.to_settings()
    settings["experiment"]["name"] = f"{series.config.name}_best"
    changes = "".join(f"#   {key}: {json.dumps(value)}\n" for key, value in best.changes.items())
    spread = "" if best.deviation is None else f" ± {best.deviation:.1f} over {len(best.values)} seeds"
    head = f"# Best point of {series.path.name}: {series.config.metric} {best.mean:.6g}{spread}, with\n{changes}"
    replace_file(series.path / BEST, (head + to_yaml(settings)).encode())
