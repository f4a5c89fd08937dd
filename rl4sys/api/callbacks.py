"""Callbacks that watch a training run and may stop it early."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from rl4sys.errors import ConfigError
from rl4sys.runs.run import Run
from rl4sys.training.progress import Observer, Progress


class Callback:
    """Base class of callbacks for `rl4sys.train`. A method stops training if it returns False.

    >>> import rl4sys
    >>> class Watch(rl4sys.Callback):
    ...     def on_evaluation(self, progress):
    ...         print("evaluated at", progress.evaluated_at)
    >>> run = rl4sys.train(
    ...     "ppo_cartpole", total_timesteps=512, callbacks=Watch(), progress=False, training={"eval_frequency": 256}
    ... )
    evaluated at 256
    evaluated at 512

    Apart from stopping early, callbacks do not change a run: the results are bit-identical with and without callbacks.
    An early stop saves a checkpoint, so the run can be resumed.
    """

    def on_round(self, progress: Progress) -> bool | None:
        """Handle the end of a round of collecting and learning."""

    def on_evaluation(self, progress: Progress) -> bool | None:
        """Handle a new evaluation; ``progress.evaluation`` is the result."""

    def on_checkpoint(self, path: Path) -> bool | None:
        """Handle a new checkpoint in the directory ``path``."""


class StopAtReturn(Callback):
    """Callback that stops training once the mean return of an evaluation reaches ``threshold``.

    >>> import rl4sys
    >>> run = rl4sys.train("ppo_cartpole", callbacks=rl4sys.StopAtReturn(20), progress=False)
    >>> run.status
    'stopped'
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def on_evaluation(self, progress: Progress) -> bool | None:
        """Stop if the mean return of the evaluation has reached the threshold."""
        assert progress.evaluation is not None  # called after an evaluation
        return progress.evaluation.mean_return < self.threshold


class StopWithoutImprovement(Callback):
    """Callback that stops training after ``evaluations`` consecutive evaluations without a new best mean return.

    >>> import rl4sys
    >>> rl4sys.StopWithoutImprovement(evaluations=5).evaluations
    5
    """

    def __init__(self, evaluations: int) -> None:
        if evaluations < 1:
            raise ConfigError(f"evaluations is {evaluations}; expected at least 1")
        self.evaluations = evaluations
        self._best = float("-inf")
        self._worse = 0

    def on_evaluation(self, progress: Progress) -> bool | None:
        """Count consecutive evaluations without a new best mean return, and stop at the limit."""
        assert progress.evaluation is not None  # called after an evaluation
        value = progress.evaluation.mean_return
        self._worse = 0 if value > self._best else self._worse + 1
        self._best = max(self._best, value)
        return self._worse < self.evaluations


class _OnRound(Callback):
    """Callback that calls a function at the end of each round."""

    def __init__(self, function: Callable[[Progress], bool | None]) -> None:
        self._function = function

    def on_round(self, progress: Progress) -> bool | None:
        return self._function(progress)


def as_callbacks(given: object) -> list[Callback]:
    """Convert the ``callbacks`` argument, a callback, a function or an iterable of them, to a list of callbacks."""
    if isinstance(given, Callback):
        return [given]
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        return [callback for one in given for callback in as_callbacks(one)]
    if callable(given) and not isinstance(given, type):
        return [_OnRound(given)]
    raise ConfigError(
        f"callbacks contains {given!r:.80}; expected instances of rl4sys.Callback, or functions that take the progress"
    )


class CallbackObserver:
    """Training observer that calls callbacks and forwards all notes and progress reports to another observer."""

    def __init__(self, run: Run, callbacks: Iterable[Callback], observer: Observer) -> None:
        self._run, self._callbacks, self._observer = run, list(callbacks), observer
        self._evaluated_at: int | None = None
        self._saved_at: int | None = None
        self._stop: Callable[[], None] = lambda: None

    def start(self, progress: Progress, stop: Callable[[], None]) -> None:
        """Store the last evaluation and checkpoint before training starts, so that only new ones are reported.

        ``stop`` ends the training after the current round.
        """
        self._evaluated_at, self._saved_at, self._stop = progress.evaluated_at, progress.saved_at, stop

    def note(self, message: str) -> None:
        """Forward a note to the wrapped observer."""
        self._observer.note(message)

    def progress(self, progress: Progress) -> None:
        """Call the callbacks for the end of a round and for a new evaluation or checkpoint, if the round had one."""
        self._observer.progress(progress)
        for callback in self._callbacks:
            self._call(callback.on_round(progress))
            if progress.evaluated_at != self._evaluated_at:
                self._call(callback.on_evaluation(progress))
        self._evaluated_at = progress.evaluated_at
        self.report_checkpoint(progress)

    def report_checkpoint(self, progress: Progress) -> None:
        """Call the callbacks with the newest checkpoint if it has not been reported yet."""
        if progress.saved_at == self._saved_at:
            return
        self._saved_at = progress.saved_at
        path = self._run.directory.checkpoints / self._run.checkpoints.resolve("latest")
        for callback in self._callbacks:
            self._call(callback.on_checkpoint(path))

    def _call(self, answer: object) -> None:
        if answer is False:
            self._stop()
