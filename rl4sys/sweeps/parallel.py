"""Independent runs trained in parallel, such as one run per seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rl4sys.environments.provided import is_recorded
from rl4sys.errors import ConfigError
from rl4sys.runs.config import ExperimentConfig
from rl4sys.runs.run import Run
from rl4sys.sweeps.processes import ProcessEngine, available_cores
from rl4sys.sweeps.scheduler import TrialObserver, TrialScheduler
from rl4sys.sweeps.trials import EVALUATION, Trial, TrialStatus, TrialTask

_RETRIES = 1


def check_parallel(configs: Sequence[ExperimentConfig], jobs: int) -> None:
    """Raise `ConfigError` if the runs of these configs cannot be trained by child processes."""
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}; expected at least 1")
    for config in configs:
        if jobs > 1 and not is_recorded(config.environment):
            raise ConfigError(
                f"jobs is {jobs}, but child processes cannot import the environment {config.environment.name!r}; "
                "move it into a module, or use jobs=1"
            )


def train_parallel(
    runs: Sequence[Run], jobs: int, observer: TrialObserver, stopping: Callable[[], bool]
) -> list[TrialStatus]:
    """Train new or stopped runs in child processes, up to ``jobs`` at a time; return the final status of each run.

    The results are the same as when the runs are trained one after another. Once ``stopping`` returns True, the runs
    save a checkpoint and stop. A run whose process was killed is restarted from its checkpoint once.
    """
    source = _Runs(runs, observer)
    TrialScheduler(source, ProcessEngine(min(jobs, available_cores())), source, _RETRIES).run(stopping)
    return list(source.statuses.values())


class _Runs:
    """Trial source for a list of runs. Forwards all statuses to an observer and stores the last one per run."""

    def __init__(self, runs: Sequence[Run], observer: TrialObserver) -> None:
        self._runs, self._observer = runs, observer
        trials = [Trial(number, number, run.config.experiment.seed, {}) for number, run in enumerate(runs)]
        self.statuses = {trial.number: TrialStatus(trial) for trial in trials}
        self._waiting = iter(trials)

    def next_trial(self) -> Trial | None:
        return next(self._waiting, None)

    def task(self, trial: Trial) -> TrialTask:
        run = self._runs[trial.number]
        return TrialTask(trial.number, run.path, run.config.to_settings(), EVALUATION, waits_for_decision=False)

    def should_continue(self, trial: Trial, step: int, value: float) -> bool:
        return True

    def on_trial_ended(self, status: TrialStatus) -> None:
        """Do nothing, because the result is stored in the run directory."""

    def show(self, status: TrialStatus) -> None:
        self.statuses[status.trial.number] = status
        self._observer.show(status)

    def tick(self) -> None:
        self._observer.tick()
