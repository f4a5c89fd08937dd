"""Process of one trial: starts or resumes its run and reports progress to the engine."""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from bisect import bisect_right
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from rl4sys.errors import RL4SysError
from rl4sys.runs.config import parse_experiment
from rl4sys.runs.directory import RunDirectory
from rl4sys.runs.run import Run
from rl4sys.sweeps.series import record_failure
from rl4sys.sweeps.trials import EVALUATION, OUTPUT, Ended, Evaluated, Event, Progressed, TrialTask, encode
from rl4sys.training.loop import TrainingLoop
from rl4sys.training.progress import Progress
from rl4sys.workers.child import die_with_parent, ignore_stop_signals
from rl4sys.workers.frames import Frame, Pipe
from rl4sys.workers.locks import wait_for_lock

_PROGRESS_SECONDS = 0.25
_LOCK_SECONDS = 20.0


def run_trial_process(connection: socket.socket, task: TrialTask) -> None:
    """Entry point of the process: train the trial and send its result to the engine."""
    die_with_parent()
    ignore_stop_signals()
    _redirect_output(task.path)
    link = EngineLink(Pipe(connection))
    link.send(_run(task, link))


def _run(task: TrialTask, link: EngineLink) -> Ended:
    try:
        finished = train_trial(task, link)
    except Exception as problem:
        # Outermost level of the process: any exception becomes the result of the trial.
        traceback.print_exc()
        sys.stderr.flush()
        message = str(problem) if isinstance(problem, RL4SysError) else f"{type(problem).__name__}: {problem}"
        record_failure(task.path, message)
        return Ended(task.number, "failed", message)
    return Ended(task.number, "completed" if finished else "stopped")


class EngineLink:
    """Connection of a trial to its engine. Kills the process of the trial if the engine's process has ended."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._decisions: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._stopping = False
        self._stop: Callable[[], None] | None = None
        threading.Thread(target=self._receive, daemon=True, name="engine link").start()

    def send(self, event: Event) -> None:
        self._pipe.send(Frame("event", {}, encode(event)))

    def wait_for_decision(self) -> bool:
        """Wait for the engine's answer to an evaluation; return True to continue training."""
        return self._decisions.get()

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Register the function `stop` for stop requests; call it now if a stop request has already arrived."""
        self._stop = stop
        if self._stopping:
            stop()

    def _receive(self) -> None:
        try:
            while True:
                frame = self._pipe.receive()
                if frame.kind == "decision":
                    self._decisions.put(frame.fields["proceed"])
                else:
                    self._request_stop()
        except (EOFError, OSError):
            # A trial without an engine must not keep writing to a run that the next sweep may resume.
            os.kill(os.getpid(), signal.SIGKILL)

    def _request_stop(self) -> None:
        self._stopping = True
        self._decisions.put(False)
        if self._stop is not None:
            self._stop()


def train_trial(task: TrialTask, link: EngineLink) -> bool:
    """Start or resume the run of a trial; return True if it finished, False if it was stopped and saved."""
    resuming = Run.exists(task.path)
    config = parse_experiment(task.settings)
    run = Run.open(task.path) if resuming else Run.create_at(task.path, config, datetime.now())
    with wait_for_lock(run.locked, _LOCK_SECONDS):
        reporter = _Reporter(run, task, link)
        loop = TrainingLoop(run, reporter)
        if run.checkpoints.names():
            loop.resume()
        link.on_stop(loop.stop)
        reporter.stop = loop.stop
        reporter.catch_up(loop.progress())
        return loop.train().finished


class _Reporter:
    """Sends evaluations, and progress at a limited rate, to the engine."""

    def __init__(self, run: Run, task: TrialTask, link: EngineLink) -> None:
        self._run, self._task, self._link = run, task, link
        self._reported_step = -1
        self._value: float | None = None
        self._progress_sent_at = 0.0
        self.stop: Callable[[], None] | None = None

    def note(self, message: str) -> None:
        sys.stdout.write(f"note: {message}\n")
        sys.stdout.flush()

    def progress(self, progress: Progress) -> None:
        if progress.evaluated_at is not None and progress.evaluated_at > self._reported_step:
            self.catch_up(progress)
        elif time.monotonic() - self._progress_sent_at >= _PROGRESS_SECONDS:
            self._send_progress(progress)

    def catch_up(self, progress: Progress) -> None:
        """Send all evaluations not yet sent by this process. After a resume, a new engine may not know earlier ones."""
        for step, value in evaluations(self._run.directory, self._task.metric):
            if self._reported_step < step <= progress.steps:
                self._reported_step, self._value = step, value
                self._send_evaluation(step, value)
        self._send_progress(progress)

    def _send_progress(self, progress: Progress) -> None:
        self._progress_sent_at = time.monotonic()
        self._link.send(Progressed(self._task.number, progress.steps, progress.total_timesteps, self._value))

    def _send_evaluation(self, step: int, value: float) -> None:
        self._link.send(Evaluated(self._task.number, step, value))
        if self._task.waits_for_decision and not self._link.wait_for_decision():
            assert self.stop is not None  # `stop` is set before the first evaluation
            self.stop()


def evaluations(run: RunDirectory, metric: str) -> list[tuple[int, float]]:
    """Return the step of each evaluation, with the newest value of `metric` at or before this step."""
    rows = run.metric_rows()
    known = {row["step"]: row[metric] for row in rows if metric in row}
    steps = sorted(known)
    evaluated = [(row["step"], bisect_right(steps, row["step"])) for row in rows if EVALUATION in row]
    return [(step, known[steps[count - 1]]) for step, count in evaluated if count]


def _redirect_output(path: Path) -> None:
    """Append stdout and stderr of this process, including those of native code, to the trial's output file."""
    path.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)
