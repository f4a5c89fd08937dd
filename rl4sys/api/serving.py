"""Training server in a thread of the calling process, for notebooks and tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from rl4sys.config import parse
from rl4sys.errors import RunError
from rl4sys.extras import check_installed
from rl4sys.registry import find_plugin
from rl4sys.server.command import read_server_file
from rl4sys.server.config import ServerConfig
from rl4sys.server.training_server import Server

_STOP_SECONDS = 120.0


class ServerHandle:
    """Training server in a thread of this process. It stops at the end of its ``with`` block or when `stop` is called.

    >>> import rl4sys
    >>> with rl4sys.serve(port=0, root="live") as server:
    ...     agent = rl4sys.Agent(server.address, observation=8, action=4)
    ...     trajectory, action = agent.request_for_action(None, [0.0] * 8)
    ...     agent.close()
    >>> action.act in range(4)
    True

    It installs no signal handler and changes no global state of the process. Learners run in child processes.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rl4sys-server", daemon=True)
        self._thread.start()
        self._server = Server(config)
        self._stopped = False
        try:
            self._wait(self._server.start())
        except BaseException:
            self._stopped = True
            self._end_loop()
            raise

    @property
    def address(self) -> str:
        """Address that clients connect to, such as localhost:50051."""
        return f"{self.config.host}:{self._server.port}"

    @property
    def metrics_port(self) -> int | None:
        """Port of the Prometheus metrics; None if the metrics endpoint is disabled."""
        return self._server.metrics_port

    def stop(self) -> None:
        """Save all policies and stop the server. Does nothing if the server is already stopped."""
        if self._stopped:
            return
        self._stopped = True
        try:
            self._wait(self._server.stop())
        finally:
            self._end_loop()

    def __enter__(self) -> ServerHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self._stopped else f"serves on {self.address}"
        return f"Server({state}, policies in {str(self.config.root)!r})"

    def _wait(self, operation: Any) -> None:
        asyncio.run_coroutine_threadsafe(operation, self._loop).result(_STOP_SECONDS)

    def _end_loop(self) -> None:
        stop: Callable[[], None] = self._loop.stop
        self._loop.call_soon_threadsafe(stop)
        self._thread.join()
        self._loop.close()


def serve(
    config: str | Path | None = None, *, port: int = 50051, root: str | Path = "live", **settings: Any
) -> ServerHandle:
    """Start a training server in a thread of this process; port 0 selects a free port.

    ``config`` is a server config file. ``settings`` override its settings, for example ``checkpoint_seconds=5``.

    >>> import rl4sys
    >>> server = rl4sys.serve(port=0)
    >>> server.stop()
    >>> server
    Server(stopped, policies in 'live')
    """
    check_installed("a training server", "torch")
    file = None if config is None else Path(config)
    given = {"root": str(root), **({} if file is None else read_server_file(file)), "port": port, **settings}
    parsed = parse(ServerConfig, given)
    folder = Path() if file is None else file.parent
    plugins = [find_plugin(plugin, folder) for plugin in parsed.plugins]
    try:
        return ServerHandle(parsed.model_copy(update={"plugins": plugins}))
    except TimeoutError as problem:
        raise RunError(f"the training server did not start within {_STOP_SECONDS:.0f} seconds") from problem
