"""Points of a series from best to worst, their seeds taken together; the best as a config to train."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from rl4sys.config import to_yaml
from rl4sys.experiment.files import replace_file
from rl4sys.lab.series import Series
from rl4sys.lab.trials import Standing, Trial

BEST, RANKING = "best.yaml", "ranking.json"


@dataclass(frozen=True)
class Ranked:
    """A point and what its completed trials were worth."""

    point: int
    changes: Mapping[str, Any]
    mean: float | None
    """None if no trial of it was completed."""
    deviation: float | None
    """Standard deviation over seeds; None with fewer than two."""
    values: Mapping[int, float]
    """By seed."""
    failed: int


def rank(standings: Iterable[Standing], direction: str) -> list[Ranked]:
    """Best first; those of which nothing is known last."""
    by_point = groupby(sorted(standings, key=lambda s: s.trial.number), key=lambda s: s.trial.point)
    points = [_aggregate(list(members)) for _, members in by_point]
    sign = -1 if direction == "maximize" else 1
    return sorted(points, key=lambda p: (p.mean is None, 0.0 if p.mean is None else sign * p.mean, p.point))


def _aggregate(members: Sequence[Standing]) -> Ranked:
    trial = members[0].trial
    values = {s.trial.seed: s.value for s in members if s.status == "completed" and _is_number(s.value)}
    known = [value for value in values.values() if value is not None]
    return Ranked(
        trial.point,
        trial.changes,
        statistics.fmean(known) if known else None,
        statistics.stdev(known) if len(known) > 1 else None,
        {seed: value for seed, value in values.items() if value is not None},
        sum(s.status == "failed" for s in members),
    )


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def write_ranking(series: Series, ranking: Sequence[Ranked]) -> None:
    replace_file(series.path / RANKING, json.dumps([asdict(ranked) for ranked in ranking], indent=1).encode())
    if ranking and ranking[0].mean is not None:
        write_best(series, ranking[0])


def write_best(series: Series, best: Ranked) -> None:
    """As a file that ``rl4sys train`` takes."""
    seed = next(iter(best.values))
    config = series.config(Trial(0, best.point, seed, best.changes))
    settings = config.to_settings()
    settings["experiment"]["name"] = f"{series.settings.name}_best"
    changes = "".join(f"#   {key}: {json.dumps(value)}\n" for key, value in best.changes.items())
    spread = "" if best.deviation is None else f" ± {best.deviation:.1f} over {len(best.values)} seeds"
    head = f"# The best of {series.path.name}: {series.settings.metric} {best.mean:.6g}{spread}, with\n{changes}"
    replace_file(series.path / BEST, (head + to_yaml(settings)).encode())
