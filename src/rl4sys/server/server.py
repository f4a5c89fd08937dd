"""The training server, from start to clean stop. Also ``python -m rl4sys.server.server``."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import logging
import signal
from collections.abc import Callable
from importlib.metadata import version as release_of
from pathlib import Path
from typing import Any, TextIO

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from rl4sys.errors import ConfigError, RunError
from rl4sys.server.access import Access
from rl4sys.server.config import Limits, ServerConfig, TlsSettings
from rl4sys.server.dispatcher import Dispatcher
from rl4sys.server.processes import prepare_workers
from rl4sys.server.service import Service
from rl4sys.server.status import Reporter
from rl4sys.wire.service import CHANNEL_OPTIONS, SERVICE

_log = logging.getLogger("rl4sys.server")

_GRACE_SECONDS = 2.0
_CALLS_OF_TOOLS = 64
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # as glibc's malloc.h numbers them
_KEPT_BYTES = 1 << 20
_OPTIONS: list[tuple[str, Any]] = [
    *CHANNEL_OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
]


class Server:
    """Listens from `start` to `stop`."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._access = Access.from_file(config.token_file)
        self._credentials = _credentials(config.tls)
        self.port = config.port
        self.metrics_port: int | None = None

    async def start(self) -> None:
        config, release = self._config, release_of("rl4sys")
        self._root = _hold(config.root)
        self._dispatcher = Dispatcher(config)
        self._reporter = Reporter(self._dispatcher, config.root, release)
        self._serve_metrics()
        self._server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_most_calls(config.limits))
        service = Service(self._dispatcher, self._access, self._status, release)
        self._server.add_generic_rpc_handlers((service.handler(),))
        self._add_health_and_reflection()
        self.port = self._listen()
        await asyncio.get_running_loop().run_in_executor(None, prepare_workers)
        await self._server.start()
        self._existing = asyncio.create_task(self._dispatcher.open_existing())

    async def stop(self) -> None:
        """Hear no more, write what was heard, let learners save."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(_GRACE_SECONDS)
        self._existing.cancel()
        await asyncio.gather(self._existing, return_exceptions=True)
        await self._dispatcher.close()
        self._root.close()
        if self.metrics_port is not None:
            self._metrics_server.shutdown()
            self._metrics_server.server_close()

    def _listen(self) -> int:
        address = f"{self._config.host}:{self._config.port}"
        try:
            if self._credentials is not None:
                return self._server.add_secure_port(address, self._credentials)
            return self._server.add_insecure_port(address)
        except RuntimeError as problem:
            raise RunError(f"cannot listen on {address}: is another server there? Choose another --port") from problem

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
        except OSError as problem:
            raise RunError(f"cannot serve metrics on port {self._config.metrics_port}: {problem.strerror}") from problem
        self.metrics_port = self._metrics_server.server_port


async def serve(config: ServerConfig, ready: Callable[[Server], None]) -> None:
    """Run a server until SIGTERM or SIGINT; ``ready`` is called once it listens."""
    _return_freed_memory()
    server = Server(config)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await server.start()
    try:
        ready(server)
        await stopped.wait()
        _log.info("stopping")
    finally:
        await server.stop()


def _return_freed_memory() -> None:
    """Large messages come and go: glibc, left alone, learns from the first to keep the room of later ones.

    The processes that learn are started afresh and keep glibc's ways, which suit tensors.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            mallopt(parameter, _KEPT_BYTES)


def _hold(root: Path) -> TextIO:
    """The server's directory, for this process alone; one that died holds nothing."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = (root / ".lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        lock.close()
        raise RunError(f"another server keeps its policies in {root}; stop it, or choose another --root") from problem
    except OSError as problem:
        raise RunError(f"cannot use the directory {root}: {problem.strerror}; choose another with --root") from problem
    return lock


def _most_calls(limits: Limits) -> int:
    """At once, before anybody knows who calls: clients, as many again that ask for decisions or say nothing, tools."""
    return 2 * limits.max_clients + _CALLS_OF_TOOLS


def _credentials(tls: TlsSettings | None) -> grpc.ServerCredentials | None:
    if tls is None:
        return None
    try:
        pair = (tls.key.read_bytes(), tls.cert.read_bytes())
        authority = tls.client_ca.read_bytes() if tls.client_ca else None
    except OSError as problem:
        raise ConfigError(f"cannot read {problem.filename}: {problem.strerror}") from problem
    return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)


if __name__ == "__main__":
    import sys

    from rl4sys.cli.main import main

    sys.argv[1:1] = ["serve"]
    main()
