"""Engine that runs trials as child processes on this machine."""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from rl4sys.sweeps.trials import Ended, Event, TrialTask, decode
from rl4sys.workers.fork_server import ForkServer
from rl4sys.workers.frames import Frame, Pipe

_EXIT_SECONDS = 10.0


def available_cores() -> int:
    """Return the number of CPU cores this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass
class _Child:
    process: BaseProcess
    pipe: Pipe


class ProcessEngine:
    """Runs up to `capacity` trials at once as child processes. The kernel kills them if the parent process dies."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._children: dict[int, _Child] = {}
        # Trials are not daemon processes, because a daemon process cannot start environment processes.
        self._fork_server = ForkServer("rl4sys.sweeps.preload", daemon=False)

    def start(self, task: TrialTask) -> None:
        process, connection = self._fork_server.start(_run_trial_process, task, task.path.name)
        self._children[task.number] = _Child(process, Pipe(connection))

    def events(self, timeout_seconds: float) -> list[Event]:
        """Wait for messages from trials; return at most one event per trial, or none after the timeout."""
        numbers = {child.pipe.fileno(): number for number, child in self._children.items()}
        return [
            self._receive(numbers[ready]) for ready in wait(list(numbers), timeout_seconds) if isinstance(ready, int)
        ]

    def send_decision(self, number: int, *, proceed: bool) -> None:
        self._send(number, Frame("decision", {"proceed": proceed}))

    def stop(self) -> None:
        for number in self._children:
            self._send(number, Frame("stop", {}))

    def close(self) -> None:
        for child in self._children.values():
            child.process.kill()
            child.process.join()
            child.pipe.close()
        self._children.clear()

    def _receive(self, number: int) -> Event:
        try:
            event = decode(self._children[number].pipe.receive().content)
        except (EOFError, OSError):
            event = Ended(number, "died")
        return self._remove(number, event) if isinstance(event, Ended) else event

    def _remove(self, number: int, event: Ended) -> Ended:
        """Wait until the process of an ended trial exits. The result `died` gets a message with the cause."""
        child = self._children.pop(number)
        child.process.join(_EXIT_SECONDS)
        if child.process.is_alive():
            child.process.kill()
            child.process.join()
        child.pipe.close()
        return event if event.result != "died" else Ended(number, "died", _exit_reason(child.process.exitcode))

    def _send(self, number: int, frame: Frame) -> None:
        try:
            self._children[number].pipe.send(frame)
        except OSError:
            # The process has just died; the next call of `events` reports it.
            return


def _exit_reason(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        name = signal.Signals(-exit_code).name
        hint = "; possibly out of memory" if name == "SIGKILL" else ""
        return f"the process of the trial was killed by {name}{hint}"
    return f"the process of the trial ended with exit code {exit_code}"


def _run_trial_process(connection: socket.socket, task: TrialTask) -> None:
    # This runs in the child process, where the modules are already loaded.
    from rl4sys.sweeps.worker import run_trial_process

    run_trial_process(connection, task)
