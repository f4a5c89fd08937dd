"""Process that trains one policy from its journal.

Each policy has its own process. As a thread of the server, a learner would hold the GIL for milliseconds at a time
while clients wait for acknowledgements. A process that crashes or runs out of memory also does not affect other
policies. Processes are forked from a fork server with torch loaded, so they start in milliseconds and share most of
torch's RAM.
"""

from __future__ import annotations

import os
import select
import socket
import time
import traceback

from rl4sys.algorithms.device import use_threads
from rl4sys.errors import RL4SysError, RunError
from rl4sys.learner.learner import Learner
from rl4sys.policy.base import Policy
from rl4sys.registry import load_plugins
from rl4sys.runs.run import Run
from rl4sys.server.acting import decide_without_memory, decode_request
from rl4sys.server.config import ServerConfig
from rl4sys.server.journal import FILE, Journal
from rl4sys.server.journal_learner import JournalLearner
from rl4sys.server.policy_directory import (
    build_policy_learner,
    link_event_files,
    max_staleness,
    open_or_create,
)
from rl4sys.server.publisher import Publisher
from rl4sys.server.task import LearnerTask
from rl4sys.spec import Spec
from rl4sys.workers.child import die_with_parent, ignore_stop_signals
from rl4sys.workers.frames import Frame, Pipe
from rl4sys.workers.locks import wait_for_lock

_JOURNAL_BATCH = 64
_PUBLISH_SECONDS = 0.02
_STATUS_SECONDS = 1.0
_LOCK_SECONDS = 60.0
_MAX_MESSAGES = 64
"""Maximum number of messages handled between two trajectories, so that decision requests cannot stop learning."""


def run_learner_process(connection: socket.socket, task: LearnerTask) -> None:
    """Entry point of a learner process. Failures are sent to the server as a `failed` message."""
    die_with_parent()
    os.nice(task.server.niceness)
    ignore_stop_signals()
    pipe = Pipe(connection)
    try:
        load_plugins(task.server.plugins)
        _open_and_learn(pipe, task)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:
        # Outermost level of the process: the server reports every failure.
        # A full disk may have space again soon; a numerical or programming error will repeat.
        transient = isinstance(error, RunError | OSError)
        pipe.send(Frame("failed", {**describe_failure(error), "transient": transient}))


def describe_failure(error: Exception) -> dict[str, str]:
    """Return the error message for clients and, for unexpected errors, the traceback for the server's log."""
    if isinstance(error, RL4SysError):
        return {"message": str(error)}
    message = f"unexpected error in the learner (traceback in the server's log): {type(error).__name__}: {error!s:.300}"
    return {"message": message, "traceback": traceback.format_exc()}


def _open_and_learn(pipe: Pipe, task: LearnerTask) -> None:
    messages: list[str] = []
    run, live = open_or_create(task, messages.append)
    spec = Spec.from_json(live["spec"])
    with wait_for_lock(run.locked, _LOCK_SECONDS):
        use_threads(run.config.experiment.threads)
        if task.server.tensorboard_links:
            link_event_files(run, task.server.root)
        learner = build_policy_learner(spec, run)
        process = LearnerProcess(run, learner, spec, pipe, task.server)
        process.resume()
        about = {"max_staleness": max_staleness(run, live), "not_portable": learner.export_error()}
        pipe.send(Frame("ready", {**live, "algorithm": run.config.algorithm.name, **about}))
        for message in messages:
            process.log(message)
        process.run()


class LearnerProcess:
    """Main loop of a learner process: trains, publishes models, saves checkpoints and answers decision requests."""

    def __init__(self, run: Run, learner: Learner, spec: Spec, pipe: Pipe, server: ServerConfig) -> None:
        self._pipe, self._server = pipe, server
        self._journal = Journal(run.path / FILE, read_only=True)
        self._trained = JournalLearner(run, learner, spec, server, self.log)
        self._publisher = Publisher(self._trained, run.path, pipe, server.keep_versions)
        self._policy: tuple[int, Policy] | None = None
        self._stopping = False

    def resume(self) -> None:
        self._trained.resume()

    def run(self) -> None:
        """Train until the server requests a stop, then save a checkpoint."""
        trained = self._trained
        with trained.opened():
            trained.write_status("running")
            if not trained.has_checkpoint:
                self._save()
            self._learn_until_stopped()
            self._publisher.publish()
            if trained.has_unsaved_rows:
                self._save()
            trained.write_status("stopped")
        self._pipe.send(Frame("stopped", {}))

    def _learn_until_stopped(self) -> None:
        publishing, saving = _Interval(_PUBLISH_SECONDS), _Interval(self._server.checkpoint_seconds)
        status = _Interval(_STATUS_SECONDS)
        self._publisher.publish()
        while not self._stopping:
            entries = self._journal.after(self._trained.row, _JOURNAL_BATCH)
            for entry in entries:
                self._trained.learn(entry)
                if publishing.has_passed():
                    self._publisher.publish()
                self._handle_messages(wait_seconds=0.0)
                if self._stopping:
                    break
            if self._trained.has_unsaved_rows and saving.has_passed():
                self._save()
            if status.has_passed():
                self._trained.update_status()
            if not entries:
                self._wait_for_entries()

    def _wait_for_entries(self) -> None:
        self._publisher.publish()
        self._pipe.send(Frame("idle", {"row": self._trained.row}))
        # The wait is limited, because a checkpoint or status update may be due before the next trajectory arrives.
        self._handle_messages(wait_seconds=_STATUS_SECONDS)

    def _save(self) -> None:
        self._pipe.send(Frame("saved", {"row": self._trained.save()}))

    def log(self, message: str) -> None:
        """Send a message to the log of the server."""
        self._pipe.send(Frame("log", {"message": message}))

    def _handle_messages(self, wait_seconds: float) -> None:
        """Wait up to `wait_seconds` for a message from the server, then handle all messages that have arrived."""
        for _ in range(_MAX_MESSAGES):
            if not select.select([self._pipe], [], [], wait_seconds)[0]:
                break
            wait_seconds, frame = 0.0, self._pipe.receive()
            if frame.kind == "stop":
                self._stopping = True
            elif frame.kind == "act":
                self._pipe.send(self._act(frame))

    def _act(self, request: Frame) -> Frame:
        version, number = self._trained.learner.version, request.fields["number"]
        if self._policy is None or self._policy[0] != version:
            self._policy = version, self._trained.learner.policy()
        try:
            reply = decide_without_memory(self._policy[1], version, *decode_request(request.content))
        except Exception as error:
            # The network may be user code. Its errors are sent to the client, and learning continues.
            return Frame("acted", {"number": number, "error": f"the policy failed to select an action: {error!r:.300}"})
        return Frame("acted", {"number": number}, reply.SerializeToString())


class _Interval:
    """Timer for an action that is due at most once every `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._since = seconds, time.monotonic()

    def has_passed(self) -> bool:
        """Return True and restart the interval if the interval has passed."""
        now = time.monotonic()
        if now - self._since < self._seconds:
            return False
        self._since = now
        return True
