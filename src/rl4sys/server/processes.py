"""Starting the process that learns a policy, without loading torch into this one."""

from __future__ import annotations

import multiprocessing
import socket
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess

from rl4sys.server.task import Task

# A fork of the server itself would carry gRPC's threads and sockets along. The fork server is a process of its own
# that has loaded what learners need, so each starts in milliseconds and shares that memory.
_processes = multiprocessing.get_context("forkserver")


def prepare_workers() -> None:
    """Have the fork server load torch while nobody waits for it."""
    _processes.set_forkserver_preload(["rl4sys.server.preload"])
    forkserver.ensure_running()


def start_worker(task: Task) -> tuple[BaseProcess, socket.socket]:
    """The process, and this side's end of the line to it."""
    ours, theirs = socket.socketpair()
    process = _processes.Process(target=_work, args=(theirs, task), name=task.policy_id, daemon=True)
    with theirs:
        try:
            process.start()
        except BaseException:
            ours.close()
            raise
    return process, ours


def _work(connection: socket.socket, task: Task) -> None:
    from rl4sys.server.worker import work

    work(connection, task)
