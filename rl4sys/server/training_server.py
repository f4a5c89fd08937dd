"""Training server: gRPC server, metrics endpoint and all policies, from start to clean stop."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from rl4sys.errors import ConfigError, RunError
from rl4sys.server.access import Access
from rl4sys.server.config import Limits, ServerConfig, TlsConfig
from rl4sys.server.dispatcher import Dispatcher
from rl4sys.server.processes import prepare_fork_server
from rl4sys.server.service import Service
from rl4sys.server.status import StatusReporter
from rl4sys.version import __version__
from rl4sys.wire.service import CHANNEL_OPTIONS, SERVICE

_log = logging.getLogger("rl4sys.server")

_GRACE_SECONDS = 2.0
_TOOL_CALLS = 64
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD in malloc.h of glibc
_RETAINED_BYTES = 1 << 20
_OPTIONS: list[tuple[str, Any]] = [
    *CHANNEL_OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
]


class Server:
    """Training server; listens between `start` and `stop`. `port` is the actual port after `start`."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._access = Access.from_file(config.token_file)
        self._credentials = _credentials(config.tls)
        self.port = config.port
        self.metrics_port: int | None = None

    async def start(self) -> None:
        """Start listening for clients, then open all existing policies in the background."""
        config = self._config
        self._root_lock = _lock_root(config.root)
        self._dispatcher = Dispatcher(config)
        self._reporter = StatusReporter(self._dispatcher, config.root, __version__)
        self._serve_metrics()
        self._server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_max_calls(config.limits))
        service = Service(self._dispatcher, self._access, self._status, __version__)
        self._server.add_generic_rpc_handlers((service.handler(),))
        self._add_health_and_reflection()
        self.port = self._listen()
        await asyncio.get_running_loop().run_in_executor(None, prepare_fork_server)
        await self._server.start()
        self._opening_existing = asyncio.create_task(self._dispatcher.open_existing())

    async def stop(self) -> None:
        """Close all connections, write received trajectories to disk, and make all learners save and stop."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(_GRACE_SECONDS)
        self._opening_existing.cancel()
        await asyncio.gather(self._opening_existing, return_exceptions=True)
        await self._dispatcher.close()
        self._root_lock.close()
        if self.metrics_port is not None:
            self._metrics_server.shutdown()
            self._metrics_server.server_close()

    def _listen(self) -> int:
        address = f"{self._config.host}:{self._config.port}"
        try:
            if self._credentials is not None:
                return self._server.add_secure_port(address, self._credentials)
            return self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise RunError(
                f"cannot listen on {address}: the port may be in use by another server; choose another --port"
            ) from error

    def _add_health_and_reflection(self) -> None:
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    async def _status(self) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, self._reporter.status)

    def _serve_metrics(self) -> None:
        if self._config.metrics_port is None:
            return
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()
        registry.register(self._reporter)
        try:
            self._metrics_server, _ = start_http_server(self._config.metrics_port, self._config.host, registry)
        except OSError as error:
            raise RunError(
                f"cannot serve metrics on port {self._config.metrics_port}: {error.strerror}; choose another "
                "--metrics-port"
            ) from error
        self.metrics_port = self._metrics_server.server_port


async def run_server(config: ServerConfig, on_ready: Callable[[Server], None]) -> None:
    """Run a server until SIGTERM or SIGINT. `on_ready` is called once the server listens."""
    _return_freed_memory()
    server = Server(config)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await server.start()
    try:
        on_ready(server)
        await stopped.wait()
        _log.info("server stopping")
    finally:
        await server.stop()


def _return_freed_memory() -> None:
    """Make glibc return the RAM of large freed messages to the system.

    By default glibc raises its thresholds after the first large message and then keeps the RAM of later messages.
    Learner processes are separate and keep the defaults, which suit tensors.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            mallopt(parameter, _RETAINED_BYTES)


def _lock_root(root: Path) -> TextIO:
    """Create and lock the server's directory. The kernel releases the lock if this process dies."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = (root / ".lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise RunError(f"another server uses the directory {root}; stop it or choose another --root") from error
    except OSError as error:
        raise RunError(f"cannot use the directory {root}: {error.strerror}; choose another --root") from error
    return lock


def _max_calls(limits: Limits) -> int:
    """Return the limit on concurrent calls: two per client (stream and decision), and some for command line tools.

    The limit applies before a call is authenticated.
    """
    return 2 * limits.max_clients + _TOOL_CALLS


def _credentials(tls: TlsConfig | None) -> grpc.ServerCredentials | None:
    if tls is None:
        return None
    try:
        pair = (tls.key.read_bytes(), tls.cert.read_bytes())
        authority = tls.client_ca.read_bytes() if tls.client_ca else None
    except OSError as error:
        raise ConfigError(f"cannot read the TLS file {error.filename}: {error.strerror}") from error
    return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)
