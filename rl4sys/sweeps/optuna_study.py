"""Optuna study in an SQLite file: proposes points, stores results and decides on pruning.

A proposal depends only on the settings, the number of the trial and the trials of earlier batches, not on time or
process. A resumed study therefore proposes the same points as a study that was never killed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import quote

import numpy as np

from rl4sys.errors import RunError
from rl4sys.extras import needed_by
from rl4sys.runs.series_files import STUDY_DATABASE
from rl4sys.sweeps.ranges import Range

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

_NAME = "study"

Outcome: TypeAlias = Literal["completed", "pruned", "failed"]


class OptunaStudy:
    """Optuna study stored in an SQLite file. Trials are cached; only this process writes to the file."""

    def __init__(self, directory: Path, space: Mapping[str, Range], direction: str) -> None:
        self._optuna = import_optuna()
        self._space, self._direction = space, direction
        self._distributions = {key: _distribution(self._optuna, values) for key, values in space.items()}
        self._study = self._open(directory / STUDY_DATABASE)
        self._cached_trials: list[FrozenTrial] | None = None

    @property
    def trials(self) -> list[FrozenTrial]:
        """All trials; read again from the file only after a write."""
        if self._cached_trials is None:
            self._cached_trials = self._study.get_trials(deepcopy=False)
        return self._cached_trials

    def changes(self, number: int) -> dict[str, Any]:
        """Return the settings that a trial changes, with their values, by dotted name."""
        params = self.trials[number].params
        return {key: _decode(values, params[key]) for key, values in self._space.items()}

    def is_open(self, number: int) -> bool:
        return not self.trials[number].state.is_finished()

    def propose(self, number: int, sampler: BaseSampler, first: Mapping[str, Any] | None) -> None:
        """Sample the next point and add it as a running trial. Values given in `first` are not sampled."""
        optuna = self._optuna
        assert number == len(self.trials)
        # Sample from a copy of the study in RAM: Optuna writes to the file once per setting, so a kill could leave an
        # incomplete trial in it.
        copy = optuna.create_study(direction=self._direction, sampler=sampler)
        copy.add_trials(self.trials)
        if first is not None:
            copy.enqueue_trial({key: _encode(self._space[key], value) for key, value in first.items()})
        asked = copy.ask(self._distributions)
        running = optuna.trial.TrialState.RUNNING
        self._study.add_trial(
            optuna.trial.create_trial(state=running, params=asked.params, distributions=self._distributions)
        )
        self._cached_trials = None

    def report(self, number: int, step: int, value: float) -> None:
        """Store the value of an evaluation at a step. Does nothing if the step already has a value."""
        frozen = self.trials[number]
        if step not in frozen.intermediate_values:
            self._optuna.trial.Trial(self._study, frozen._trial_id).report(value, step)
            self._cached_trials = None

    def newest_step(self, number: int) -> int:
        return self.trials[number].last_step or 0

    def should_prune(self, number: int, pruner: BasePruner) -> bool:
        """Return True if `pruner` stops a trial at its newest step because completed trials were better there."""
        return pruner.prune(self._study, self.trials[number])

    def finish(self, number: int, outcome: Outcome, value: float | None) -> None:
        """Store the outcome of a trial. Does nothing if the trial is already finished."""
        states = self._optuna.trial.TrialState
        state = {"completed": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}[outcome]
        if self.is_open(number):
            self._study.tell(number, value, state)
            self._cached_trials = None

    def importances(self) -> dict[str, float]:
        """Return the importance of each setting for the score; empty with fewer than two distinct scores."""
        completed = [trial for trial in self.trials if trial.state.name == "COMPLETE"]
        if len({trial.value for trial in completed}) < 2:
            return {}
        found: dict[str, float] = self._optuna.importance.get_param_importances(self._study)
        return found

    def _open(self, path: Path) -> Study:
        optuna = self._optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            storage = optuna.storages.RDBStorage(_database_url(path))
            study: Study = optuna.create_study(
                storage=storage, study_name=_NAME, direction=self._direction, load_if_exists=True
            )
        except Exception as problem:
            # For a corrupt or read-only file, Optuna raises errors of SQLAlchemy and SQLite unchanged.
            raise RunError(f"the study in {path} cannot be opened: {problem}") from problem
        return study


def _database_url(path: Path) -> str:
    """Return the SQLAlchemy URL of a database file; special characters in the path are quoted."""
    from sqlalchemy.engine import URL

    url = URL.create("sqlite", database=f"file:{quote(str(path.resolve()))}", query={"uri": "true"})
    return url.render_as_string()


def import_optuna() -> Any:
    with needed_by("tuning"):
        import optuna
    return optuna


def make_sampler(seed: int, number: int, startup_trials: int) -> Any:
    """Create the sampler for one trial. Each trial has its own seed, so proposals do not depend on earlier draws."""
    own_seed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    return import_optuna().samplers.TPESampler(seed=own_seed, n_startup_trials=startup_trials)


def _distribution(optuna: Any, values: Range) -> BaseDistribution:
    kinds = optuna.distributions
    found: BaseDistribution
    if values.choices is not None:
        found = kinds.CategoricalDistribution([_encode(values, choice) for choice in values.choices])
    elif values.integer:
        low, high = values.choices_or_bounds
        found = kinds.IntDistribution(low, high, log=values.log, step=int(values.step or 1))
    else:
        found = kinds.FloatDistribution(values.low, values.high, log=values.log, step=values.step)
    return found


def _encode(values: Range, value: Any) -> Any:
    """Convert a value to a type that Optuna can store. Lists and mappings among the choices become JSON texts."""
    if values.choices is None or value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value)


def _decode(values: Range, stored: Any) -> Any:
    if values.choices is None:
        return stored
    return next(choice for choice in values.choices if _encode(values, choice) == stored)


def best_so_far(trials: Sequence[FrozenTrial], direction: str) -> Iterable[tuple[int, float]]:
    """Yield the number of each completed trial and the best value up to this trial."""
    better = max if direction == "maximize" else min
    best: float | None = None
    for trial in trials:
        if trial.state.name == "COMPLETE" and trial.value is not None:
            best = trial.value if best is None else better(best, trial.value)
            yield trial.number, best
