"""Start of learner processes, without loading torch into the server."""

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
    """Start the learner process of a policy; return it and the server's end of the connection to it."""
    return _fork_server.start(_run_learner_process, task, task.policy_id)


def _run_learner_process(connection: socket.socket, task: LearnerTask) -> None:
    # Imported in the child, where the modules are preloaded.
    from rl4sys.server.learner_process import run_learner_process

    run_learner_process(connection, task)
