"""Hyperparameter search for a custom training loop: ask for a point, train with it, tell the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from rl4sys.errors import ConfigError
from rl4sys.sweeps.optuna_study import OptunaStudy, make_sampler
from rl4sys.sweeps.ranges import Range

Point = Mapping[str, Any]
"""Point of the search: the value of each searched setting by dotted name."""


class AskTellSearch:
    """Search over ranges in the format of a study config; stored as an Optuna study in ``directory``.

    Proposals depend only on the seed and the stored results, so a search continues unchanged after a restart.
    """

    def __init__(
        self,
        search: Mapping[str, Any],
        directory: Path,
        direction: Literal["maximize", "minimize"] = "maximize",
        seed: int = 0,
        startup_trials: int = 10,
    ) -> None:
        self._ranges = {key: _parse_range(key, values) for key, values in search.items()}
        directory.mkdir(parents=True, exist_ok=True)
        self._study = OptunaStudy(directory, self._ranges, direction)
        self._seed, self._startup_trials = seed, startup_trials

    def ask(self) -> dict[str, Any]:
        """Propose a point from the results so far. The last point is proposed again until its result is told."""
        number = len(self._study.trials)
        if number and self._study.is_open(number - 1):
            return self._study.changes(number - 1)
        self._propose(None)
        return self._study.changes(number)

    def tell(self, point: Point, value: float) -> None:
        """Store the result of a point. The point may be a proposed point or any other point within the ranges."""
        self._check(point)
        wanted = {key: point[key] for key in self._ranges}
        numbers = range(len(self._study.trials))
        number = next((n for n in numbers if self._study.is_open(n) and self._study.changes(n) == wanted), None)
        if number is None:
            number = len(self._study.trials)
            self._propose(wanted)
        self._study.finish(number, "completed", float(value))

    def tell_all(self, history: Iterable[tuple[Point, float]]) -> None:
        """Store all results in `history` that are not stored yet."""
        known = [(self._study.changes(trial.number), trial.value) for trial in self._study.trials]
        for point, value in history:
            self._check(point)
            if ({key: point[key] for key in self._ranges}, float(value)) not in known:
                self.tell(point, value)

    def _propose(self, first: Point | None) -> None:
        number = len(self._study.trials)
        self._study.propose(number, make_sampler(self._seed, number, self._startup_trials), first)

    def _check(self, point: Point) -> None:
        for key, values in self._ranges.items():
            if key not in point:
                raise ConfigError(f"the searched setting {key!r} is missing; the settings are {', '.join(point)}")
            if not values.contains(point[key]):
                raise ConfigError(f"{key!r} is {point[key]!r:.80}, which is outside its search range")


def _parse_range(key: str, values: Any) -> Range:
    try:
        return Range.model_validate(values)
    except ValidationError as problem:
        message = problem.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(f"the search range of {key!r} is {values!r:.80}; {message}") from problem
