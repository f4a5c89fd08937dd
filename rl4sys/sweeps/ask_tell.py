"""Hyperparameter search for a training loop of one's own: ask for a point, train, tell its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from rl4sys.errors import ConfigError
from rl4sys.sweeps.optuna_study import OptunaStudy, make_sampler
from rl4sys.sweeps.ranges import Range

Point = Mapping[str, Any]
"""Value of each searched setting by dotted name."""


class AskTellSearch:
    """Search over ranges as in a study config, stored as an Optuna study in ``directory``.

    The proposals depend on the seed and the results told so far, so a search continues after a restart.
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
        """Propose a point, chosen from the results so far. Without a result, the last proposal is repeated."""
        number = len(self._study.trials)
        if number and self._study.is_open(number - 1):
            return self._study.changes(number - 1)
        self._propose(None)
        return self._study.changes(number)

    def tell(self, point: Point, value: float) -> None:
        """Store the result of a point: a proposed one, or any other within the ranges."""
        self._check(point)
        wanted = {key: point[key] for key in self._ranges}
        numbers = range(len(self._study.trials))
        number = next((n for n in numbers if self._study.is_open(n) and self._study.changes(n) == wanted), None)
        if number is None:
            number = len(self._study.trials)
            self._propose(wanted)
        self._study.finish(number, "completed", float(value))

    def tell_all(self, history: Iterable[tuple[Point, float]]) -> None:
        """Store the results that the search does not have yet."""
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
                raise ConfigError(f"the config has no {key!r}, which is searched; it has {', '.join(point)}")
            if not values.contains(point[key]):
                raise ConfigError(f"{key} is {point[key]!r:.80}, which is outside its search range")


def _parse_range(key: str, values: Any) -> Range:
    try:
        return Range.model_validate(values)
    except ValidationError as problem:
        message = problem.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(f"the search range of {key} is {values!r:.80}: {message}") from problem
