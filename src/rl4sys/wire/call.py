"""Opening a channel to a server, for clients and tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from rl4sys.errors import ConfigError
from rl4sys.wire.messages import StatusReply, StatusRequest
from rl4sys.wire.service import CHANNEL_OPTIONS, STATUS


@dataclass(frozen=True)
class Credentials:
    """How one shows who one is: a token, TLS with the authority of the server's certificate, one's own certificate."""

    token: str | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


def open_channel(address: str, credentials: Credentials, options: list[tuple[str, Any]] | None = None) -> grpc.Channel:
    options = [*CHANNEL_OPTIONS, *(options or [])]
    if not (credentials.ca or credentials.cert):
        return grpc.insecure_channel(address, options)
    ca, cert, key = (_read(path) for path in (credentials.ca, credentials.cert, credentials.key))
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, cert), options)


def ask_status(address: str, credentials: Credentials, timeout_seconds: float = 5.0) -> StatusReply:
    """What the server is doing; a `ConfigError` says why there is no answer."""
    with open_channel(address, credentials) as channel:
        call = channel.unary_unary(STATUS, StatusRequest.SerializeToString, StatusReply.FromString)
        try:
            return call(StatusRequest(), timeout=timeout_seconds, metadata=credentials.metadata())
        except grpc.RpcError as problem:
            raise ConfigError(f"no answer from a server at {address}: {problem.details()}") from problem


def _read(path: Path | None) -> bytes | None:
    try:
        return path.read_bytes() if path else None
    except OSError as problem:
        raise ConfigError(f"cannot read {path}: {problem.strerror}") from problem
