"""Trials as processes of this machine, each forked from one that has torch loaded already."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from rl4sys.lab.trials import Ended, Event, Task, decode

_processes = multiprocessing.get_context("forkserver")
_END_SECONDS = 10.0


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass
class _Running:
    process: BaseProcess
    connection: Connection


class Processes:
    """The engine of one machine. Its trials die with it, however it ends."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._running: dict[int, _Running] = {}
        _processes.set_forkserver_preload(["rl4sys.lab.preload"])

    def start(self, task: Task) -> None:
        ours, theirs = _processes.Pipe()
        process = _processes.Process(target=_work, args=(theirs, task), name=task.path.name)
        process.start()
        theirs.close()
        self._running[task.number] = _Running(process, ours)

    def events(self, timeout_seconds: float) -> list[Event]:
        numbers = {running.connection: number for number, running in self._running.items()}
        ready = wait(list(numbers), timeout_seconds)
        return [self._hear(numbers[connection]) for connection in ready if isinstance(connection, Connection)]

    def answer(self, number: int, *, go_on: bool) -> None:
        self._say(number, {"go_on": go_on})

    def stop(self) -> None:
        for number in self._running:
            self._say(number, {"stop": True})

    def close(self) -> None:
        for running in self._running.values():
            running.process.kill()
            running.process.join()
            running.connection.close()
        self._running.clear()

    def _hear(self, number: int) -> Event:
        try:
            event = decode(self._running[number].connection.recv_bytes())
        except (EOFError, OSError):
            event = Ended(number, "died")
        return self._bury(number, event) if isinstance(event, Ended) else event

    def _bury(self, number: int, event: Ended) -> Ended:
        """Wait for the process of a trial that ended; one that died says by its exit code of what."""
        running = self._running.pop(number)
        running.process.join(_END_SECONDS)
        if running.process.is_alive():
            running.process.kill()
            running.process.join()
        running.connection.close()
        return event if event.how != "died" else Ended(number, "died", _cause(running.process.exitcode))

    def _say(self, number: int, words: dict[str, bool]) -> None:
        try:
            self._running[number].connection.send_bytes(json.dumps(words).encode())
        except OSError:
            # It died a moment ago; the next `events` tells.
            return


def _cause(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        name = signal.Signals(-exit_code).name
        hint = "; was memory short?" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}"
    return f"its process ended with exit code {exit_code}"


def _work(connection: Connection, task: Task) -> None:
    from rl4sys.lab.worker import work

    work(connection, task)
