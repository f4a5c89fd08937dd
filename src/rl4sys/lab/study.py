"""What an Optuna study knows: which points were tried, how they did, and which to try next.

What it proposes for a trial depends on the settings, on the number of the trial and on the trials before its batch
alone, never on when it is asked or by which process. So a study that was killed proposes what it would have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import quote

import numpy as np

from rl4sys.errors import MissingExtraError, RunError
from rl4sys.lab.ranges import Range

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

FILE = "study.db"
_NAME = "study"

Outcome: TypeAlias = Literal["completed", "pruned", "failed"]


class Memory:
    """The study in its SQLite file."""

    def __init__(self, directory: Path, space: Mapping[str, Range], direction: str) -> None:
        self._optuna = import_optuna()
        self._space, self._direction = space, direction
        self._distributions = {key: _distribution(self._optuna, values) for key, values in space.items()}
        self._study = self._open(directory / FILE)
        self._known: list[FrozenTrial] | None = None

    @property
    def trials(self) -> list[FrozenTrial]:
        """All of them; read again only when something was written, since nobody else writes."""
        if self._known is None:
            self._known = self._study.get_trials(deepcopy=False)
        return self._known

    def changes(self, number: int) -> dict[str, Any]:
        """What was changed in a trial, by dotted name."""
        params = self.trials[number].params
        return {key: _decoded(values, params[key]) for key, values in self._space.items()}

    def is_open(self, number: int) -> bool:
        return not self.trials[number].state.is_finished()

    def propose(self, number: int, sampler: BaseSampler, first: Mapping[str, Any] | None) -> None:
        """Add the next trial, as one that runs; ``first`` are values that are given, not sought."""
        optuna = self._optuna
        assert number == len(self.trials)
        # Asked of a copy, because asking the file itself would write setting by setting, and could break off between.
        copy = optuna.create_study(direction=self._direction, sampler=sampler)
        copy.add_trials(self.trials)
        if first is not None:
            copy.enqueue_trial({key: _encoded(self._space[key], value) for key, value in first.items()})
        asked = copy.ask(self._distributions)
        running = optuna.trial.TrialState.RUNNING
        self._study.add_trial(
            optuna.trial.create_trial(state=running, params=asked.params, distributions=self._distributions)
        )
        self._known = None

    def report(self, number: int, step: int, value: float) -> None:
        """Write an intermediate value down; one that is there stays."""
        frozen = self.trials[number]
        if step not in frozen.intermediate_values:
            self._optuna.trial.Trial(self._study, frozen._trial_id).report(value, step)
            self._known = None

    def newest_step(self, number: int) -> int:
        return self.trials[number].last_step or 0

    def falls_behind(self, number: int, pruner: BasePruner) -> bool:
        """Whether a trial does worse, at its newest step, than those completed did."""
        return pruner.prune(self._study, self.trials[number])

    def tell(self, number: int, outcome: Outcome, value: float | None) -> None:
        """Close a trial; one that is closed stays as it is."""
        states = self._optuna.trial.TrialState
        state = {"completed": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}[outcome]
        if self.is_open(number):
            self._study.tell(number, value, state)
            self._known = None

    def importances(self) -> dict[str, float]:
        """How much of the differences between trials each setting accounts for; empty where too few can tell."""
        completed = [trial for trial in self.trials if trial.state.name == "COMPLETE"]
        if len({trial.value for trial in completed}) < 2:
            return {}
        found: dict[str, float] = self._optuna.importance.get_param_importances(self._study)
        return found

    def _open(self, path: Path) -> Study:
        optuna = self._optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            storage = optuna.storages.RDBStorage(_address(path))
            study: Study = optuna.create_study(
                storage=storage, study_name=_NAME, direction=self._direction, load_if_exists=True
            )
        except Exception as problem:
            # The storage passes on whatever its database says of a file that is damaged, or cannot be written.
            raise RunError(f"the study in {path} cannot be opened: {problem}") from problem
        return study


def _address(path: Path) -> str:
    """Of a database file, whatever letters its name has."""
    from sqlalchemy.engine import URL

    url = URL.create("sqlite", database=f"file:{quote(str(path.resolve()))}", query={"uri": "true"})
    return url.render_as_string()


def import_optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError as problem:
        raise MissingExtraError(
            f"tuning needs {problem.name}, which is not installed: pip install 'rl4sys[tune]'"
        ) from problem
    return optuna


def make_sampler(seed: int, number: int, startup_trials: int) -> Any:
    """One for each trial, with its own random numbers: none depends on how many were drawn before."""
    own_seed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    return import_optuna().samplers.TPESampler(seed=own_seed, n_startup_trials=startup_trials)


def _distribution(optuna: Any, values: Range) -> BaseDistribution:
    kinds = optuna.distributions
    found: BaseDistribution
    if values.choices is not None:
        found = kinds.CategoricalDistribution([_encoded(values, choice) for choice in values.choices])
    elif values.integer:
        low, high = values.ends
        found = kinds.IntDistribution(low, high, log=values.log, step=int(values.step or 1))
    else:
        found = kinds.FloatDistribution(values.low, values.high, log=values.log, step=values.step)
    return found


def _encoded(values: Range, value: Any) -> Any:
    """As a study keeps it: of choices, those that are lists or blocks as text."""
    if values.choices is None or value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value)


def _decoded(values: Range, kept: Any) -> Any:
    if values.choices is None:
        return kept
    return next(choice for choice in values.choices if _encoded(values, choice) == kept)


def history(trials: Sequence[FrozenTrial], direction: str) -> Iterable[tuple[int, float]]:
    """The best value so far after each completed trial."""
    better = max if direction == "maximize" else min
    best: float | None = None
    for trial in trials:
        if trial.state.name == "COMPLETE" and trial.value is not None:
            best = trial.value if best is None else better(best, trial.value)
            yield trial.number, best
