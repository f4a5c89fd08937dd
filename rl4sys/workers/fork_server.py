"""Start of child processes from a fork server with preloaded modules."""

from __future__ import annotations

import gc
import multiprocessing
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, spawn
from multiprocessing.process import BaseProcess
from typing import Any

# A fork of the parent itself would copy its open sockets and the locks of its threads. The fork server is a separate
# process with the modules loaded, so a child starts in milliseconds and shares the RAM of the modules.
_context = multiprocessing.get_context("forkserver")


class ForkServer:
    """Starts child processes from a fork server.

    `preload` is the name of a module to import once, before the first fork. If `daemon` is True, the child processes
    cannot start processes of their own.
    """

    def __init__(self, preload: str, *, daemon: bool) -> None:
        self._preload, self._daemon = preload, daemon

    def prepare(self) -> None:
        """Start the fork server now, so that the first child does not wait for the imports."""
        _context.set_forkserver_preload([self._preload])
        forkserver.ensure_running()

    def start(self, target: Callable[..., None], argument: Any, name: str) -> tuple[BaseProcess, socket.socket]:
        """Run `target(connection, argument)` in a child; return the process and the parent's end of the connection."""
        _context.set_forkserver_preload([self._preload])
        parent_end, child_end = socket.socketpair()
        process = _context.Process(target=target, args=(child_end, argument), name=name, daemon=self._daemon)
        with child_end:
            try:
                with _without_main_module():
                    process.start()
            except BaseException:
                parent_end.close()
                raise
        return process, parent_end


_starting = threading.local()
_data_for_child = spawn.get_preparation_data


def _data_without_main(name: str) -> dict[str, Any]:
    """Return the start data of a child process; inside `_without_main_module`, omit the path of the main module."""
    data = dict(_data_for_child(name))
    if getattr(_starting, "active", False):
        data.pop("init_main_from_path", None)
        data.pop("init_main_from_name", None)
    return data


spawn.get_preparation_data = _data_without_main


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Context for starting child processes that do not import the main module.

    By default, each child imports the main module, because the target may be defined there. The main module may be a
    script without a `__main__` guard, and all targets of a `ForkServer` are defined in this package. Processes started
    by other threads are not affected.
    """
    _starting.active = True
    try:
        yield
    finally:
        _starting.active = False


def freeze_loaded_modules() -> None:
    """Exempt all existing objects from garbage collection; call this last in a preload module.

    Otherwise the garbage collector of each child would write to all inherited memory pages, which copies them.
    """
    gc.collect()
    gc.freeze()
