"""The process of one trial: takes its run up where it stands, or begins it, and tells the engine how it goes."""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path

from rl4sys.errors import RL4SysError, RunError
from rl4sys.experiment.config import parse_experiment
from rl4sys.experiment.metrics import read_metrics
from rl4sys.experiment.run import Run
from rl4sys.lab.series import note_failure
from rl4sys.lab.trials import EVALUATION, OUTPUT, Ended, Evaluated, Event, Moved, Task, encode
from rl4sys.trainer import Progress, Trainer

_PARENT_DEATH_SIGNAL = 1
_MOVED_SECONDS = 0.25
_LOCK_SECONDS, _LOCK_RETRY_SECONDS = 20.0, 0.05


def work(connection: Connection, task: Task) -> None:
    """The whole life of the process."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    # Signals to the group are the sweep's affair: it tells its trials when to stop, and they save first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _write_output_to(task.path)
    line = Line(connection)
    line.tell(_run(task, line))


def _run(task: Task, line: Line) -> Ended:
    try:
        finished = train_trial(task, line)
    except Exception as problem:
        # The edge of the process: whatever went wrong is the trial's result.
        traceback.print_exc()
        sys.stderr.flush()
        message = str(problem) if isinstance(problem, RL4SysError) else f"{type(problem).__name__}: {problem}"
        note_failure(task.path, message)
        return Ended(task.number, "failed", message)
    return Ended(task.number, "completed" if finished else "stopped")


class Line:
    """This side of what an engine and a trial say to each other. Without an engine, a trial ends at once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._verdicts: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._stopping = False
        self._stop: Callable[[], None] | None = None
        threading.Thread(target=self._listen, daemon=True, name="line").start()

    def tell(self, event: Event) -> None:
        self._connection.send_bytes(encode(event))

    def verdict(self) -> bool:
        """Wait for what an evaluation is answered with."""
        return self._verdicts.get()

    def on_stop(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        if self._stopping:
            stop()

    def _listen(self) -> None:
        try:
            while True:
                said = json.loads(self._connection.recv_bytes())
                if "go_on" in said:
                    self._verdicts.put(said["go_on"])
                else:
                    self._ask_to_stop()
        except (EOFError, OSError):
            # What nobody conducts any more must not go on writing to a run that the next sweep takes up.
            os.kill(os.getpid(), signal.SIGKILL)

    def _ask_to_stop(self) -> None:
        self._stopping = True
        self._verdicts.put(False)
        if self._stop is not None:
            self._stop()


def train_trial(task: Task, line: Line) -> bool:
    """Whether it has all its steps; if not, it was stopped, and saved."""
    resuming = Run.exists(task.path)
    config = parse_experiment(task.settings)
    run = Run.open(task.path) if resuming else Run.create_at(task.path, config, datetime.now())
    with _held(run):
        reporter = _Reporter(run, task, line)
        trainer = Trainer(run, reporter)
        if run.checkpoints.names():
            trainer.resume()
        line.on_stop(trainer.stop)
        reporter.stop = trainer.stop
        reporter.catch_up(trainer.progress())
        return trainer.train().finished


class _Reporter:
    """Tells of evaluations, and now and then of progress."""

    def __init__(self, run: Run, task: Task, line: Line) -> None:
        self._run, self._task, self._line = run, task, line
        self._told_step = -1
        self._value: float | None = None
        self._moved_at = 0.0
        self.stop: Callable[[], None] | None = None

    def note(self, message: str) -> None:
        sys.stdout.write(f"note: {message}\n")
        sys.stdout.flush()

    def progress(self, progress: Progress) -> None:
        if progress.evaluated_at is not None and progress.evaluated_at > self._told_step:
            self.catch_up(progress)
        elif time.monotonic() - self._moved_at >= _MOVED_SECONDS:
            self._tell_moved(progress)

    def catch_up(self, progress: Progress) -> None:
        """Tell of all evaluations not yet told of. A run taken up again tells of all: whoever asks may know of none."""
        for step, value in evaluations(self._run.metrics, self._task.metric):
            if self._told_step < step <= progress.steps:
                self._told_step, self._value = step, value
                self._tell_evaluation(step, value)
        self._tell_moved(progress)

    def _tell_moved(self, progress: Progress) -> None:
        self._moved_at = time.monotonic()
        self._line.tell(Moved(self._task.number, progress.steps, progress.total_timesteps, self._value))

    def _tell_evaluation(self, step: int, value: float) -> None:
        self._line.tell(Evaluated(self._task.number, step, value))
        if self._task.waits and not self._line.verdict():
            assert self.stop is not None  # set before the first evaluation
            self.stop()


def evaluations(metrics: Path, metric: str) -> list[tuple[int, float]]:
    """For each evaluation of a run its step, and the newest value of the metric by then."""
    rows = read_metrics(metrics) if metrics.is_file() else []
    known = {row["step"]: row[metric] for row in rows if metric in row}
    steps = sorted(known)
    evaluated = [(row["step"], bisect_right(steps, row["step"])) for row in rows if EVALUATION in row]
    return [(step, known[steps[count - 1]]) for step, count in evaluated if count]


@contextmanager
def _held(run: Run) -> Iterator[None]:
    """Hold the run; one that a killed sweep left behind lets go of it in a moment."""
    deadline = time.monotonic() + _LOCK_SECONDS
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(run.locked())
                break
            except RunError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOCK_RETRY_SECONDS)
        yield


def _write_output_to(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)
