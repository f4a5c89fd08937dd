"""Execution of training runs in the calling process: progress display, callbacks and Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from rl4sys.api.callbacks import Callback, CallbackObserver
from rl4sys.api.notebook import NotebookDisplay, in_notebook
from rl4sys.errors import RunError
from rl4sys.runs.run import Run
from rl4sys.sweeps.parallel import train_parallel
from rl4sys.training.loop import TrainingLoop
from rl4sys.training.progress import LoggingObserver, Observer, Progress
from rl4sys.training.session import open_loop

ROOT = Path("experiments")


def train_run(run: Run, callbacks: Iterable[Callback], *, progress: bool) -> Progress:
    """Train a run from its newest checkpoint, or from the start if it has none, and return the final progress.

    Ctrl-C stops training, saves a checkpoint and then raises `KeyboardInterrupt`.
    """
    with run.locked():
        display = make_display(run, shown=progress)
        observer = CallbackObserver(run, callbacks, display)
        loop = open_loop(run, TrainingLoop, observer)
        if loop.progress().finished:
            observer.note(
                f"{run.path} has already finished its {loop.progress().steps:,} steps; to continue, give a larger "
                "total_timesteps"
            )
            return loop.progress()
        observer.start(loop.progress(), loop.stop)
        with display if isinstance(display, AbstractContextManager) else nullcontext(), stop_on_interrupt(loop.stop):
            result = loop.train()
            observer.report_checkpoint(result)
        return result


def run_in_parallel(runs: Sequence[Run], jobs: int, *, progress: bool) -> None:
    """Train runs in child processes. Raises `RunError` if a run fails."""
    from rich.console import Console

    from rl4sys.cli.views.parallel import ParallelDisplay

    display = ParallelDisplay(Console(quiet=not progress))
    with stop_on_interrupt() as stopping, display:
        statuses = train_parallel(runs, jobs, display, stopping)
    failed = [status for status in statuses if status.state == "failed"]
    if failed:
        raise RunError(f"the run with seed {failed[0].trial.seed} failed: {failed[0].message}")


def make_display(run: Run, *, shown: bool) -> Observer:
    """Return the progress display: a bar in a notebook or terminal, else lines of text; only notes if not ``shown``."""
    if not shown or not run.config.logging.terminal:
        return LoggingObserver()
    if in_notebook():
        return NotebookDisplay(run.path.name)
    from rich.console import Console

    from rl4sys.cli.views.display import Display as TerminalDisplay

    return TerminalDisplay(Console(), run.config.training.total_timesteps, enabled=True)


@contextmanager
def stop_on_interrupt(stop: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Context that calls ``stop`` on Ctrl-C and raises `KeyboardInterrupt` only when the ``with`` block has ended.

    The block can therefore finish its work, such as saving a checkpoint. The context yields a function that returns
    True after Ctrl-C. A second Ctrl-C interrupts immediately. In other threads than the main thread, the context has
    no effect, because they do not receive signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    previous = signal.getsignal(signal.SIGINT)
    interrupted = False

    def handle(_number: int, _frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        stop()
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: interrupted
    finally:
        signal.signal(signal.SIGINT, previous)
    if interrupted:
        raise KeyboardInterrupt
