"""Child processes from a fork server with preloaded modules."""

from __future__ import annotations

import gc
import multiprocessing
import socket
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from typing import Any

# A fork of the parent itself would copy its threads and sockets. The fork server is a separate process with the
# modules loaded, so a child starts in milliseconds and shares the RAM of the modules.
_context = multiprocessing.get_context("forkserver")


class ForkServer:
    """Starts child processes from a fork server.

    `preload` is the name of a module to import once, before the first fork. Children with `daemon` cannot start
    processes of their own.
    """

    def __init__(self, preload: str, *, daemon: bool) -> None:
        self._preload, self._daemon = preload, daemon

    def prepare(self) -> None:
        """Start the fork server now; the first child then does not wait for the imports."""
        _context.set_forkserver_preload([self._preload])
        forkserver.ensure_running()

    def start(self, target: Callable[..., None], argument: Any, name: str) -> tuple[BaseProcess, socket.socket]:
        """Run `target(connection, argument)` in a child; return the process and the parent's end of the connection."""
        _context.set_forkserver_preload([self._preload])
        parent_end, child_end = socket.socketpair()
        process = _context.Process(target=target, args=(child_end, argument), name=name, daemon=self._daemon)
        with child_end:
            try:
                process.start()
            except BaseException:
                parent_end.close()
                raise
        return process, parent_end


def freeze_loaded_modules() -> None:
    """Exempt all present objects from garbage collection; call this last in a preload module.

    Otherwise the collector of each child would write to, and so copy, every inherited page.
    """
    gc.collect()
    gc.freeze()
