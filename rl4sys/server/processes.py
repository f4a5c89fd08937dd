"""Start of learner processes without loading torch into the server process."""

from __future__ import annotations

import socket
from multiprocessing.process import BaseProcess

from rl4sys.server.task import LearnerTask
from rl4sys.workers.fork_server import ForkServer

_fork_server = ForkServer("rl4sys.server.preload", daemon=True)


def prepare_fork_server() -> None:
    """Start the fork server and load torch into it, so that the first client does not wait for the imports."""
    _fork_server.prepare()


def start_learner_process(task: LearnerTask) -> tuple[BaseProcess, socket.socket]:
    """Start the learner process of a policy; return the process and the server's end of the connection."""
    return _fork_server.start(_run_learner_process, task, task.policy_id)


def _run_learner_process(connection: socket.socket, task: LearnerTask) -> None:
    # This runs in the child process, where the modules are already loaded.
    from rl4sys.server.learner_process import run_learner_process

    run_learner_process(connection, task)
