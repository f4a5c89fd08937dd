"""gRPC channels to a server, for clients and command line tools."""

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
    """Token, TLS certificates and key of a client; certificates and key are in PEM format."""

    token: str | None = None
    tls: bool = False
    ca: bytes | None = None
    """CA certificates that verify the server's certificate; None for the system's CA certificates."""
    cert: bytes | None = None
    key: bytes | None = None

    @classmethod
    def from_files(cls, token: str | None, ca: Path | None, cert: Path | None, key: Path | None) -> Credentials:
        """Create credentials from a token and PEM files; any file enables TLS."""
        files = {"ca": ca, "cert": cert, "key": key}
        contents = {name: read_file(path, f"tls {name}") for name, path in files.items() if path is not None}
        return cls(token, bool(contents), **contents)

    def metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


def open_channel(address: str, credentials: Credentials, options: list[tuple[str, Any]] | None = None) -> grpc.Channel:
    options = [*CHANNEL_OPTIONS, *(options or [])]
    if not credentials.tls:
        return grpc.insecure_channel(address, options)
    secure = grpc.ssl_channel_credentials(credentials.ca, credentials.key, credentials.cert)
    return grpc.secure_channel(address, secure, options)


def ask_status(address: str, credentials: Credentials, timeout_seconds: float = 5.0) -> StatusReply:
    """Request the status of a server. Raises `ConfigError` if the server does not answer."""
    with open_channel(address, credentials) as channel:
        call = channel.unary_unary(STATUS, StatusRequest.SerializeToString, StatusReply.FromString)
        try:
            return call(StatusRequest(), timeout=timeout_seconds, metadata=credentials.metadata())
        except grpc.RpcError as problem:
            raise ConfigError(
                f"no answer from a server at '{address}'; check the address and credentials, or start a server with "
                f"`rl4sys serve` ({problem.details()})"
            ) from problem


def read_file(path: Path, setting: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise ConfigError(f"{setting} is {str(path)!r}, which cannot be read: {problem.strerror}") from problem
