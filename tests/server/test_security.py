"""Tokens and certificates over a real socket."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import trustme

from rl4sys.errors import ConfigError
from rl4sys.wire.call import Credentials, ask_status
from tests.live import LiveServer, WireClient, running_server


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def token_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Server with a token file."""
    root = tmp_path_factory.mktemp("tokens")
    (root / "tokens").write_text("token-of-a client=a\ntoken-for-all policies=*\n")
    with running_server(root / "live", "--token-file", str(root / "tokens")) as server:
        yield server


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[LiveServer]:
    """Server with TLS and client certificates."""
    root = tmp_path_factory.mktemp("tls")
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(str(root / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(root / "cert.pem"))
    authority.cert_pem.write_to_path(str(root / "ca.pem"))
    options = ("--tls-cert", "cert.pem", "--tls-key", "key.pem", "--tls-client-ca", "ca.pem")
    with running_server(root / "live", *(o if o.startswith("--") else str(root / o) for o in options)) as server:
        yield server


def client_credentials(
    folder: Path, server: LiveServer, authority: trustme.CA, until: datetime.datetime | None = None
) -> Credentials:
    certificate = authority.issue_cert("client", not_after=until)
    certificate.private_key_pem.write_to_path(str(folder / "client.key"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "client.pem"))
    return Credentials.from_files(None, server.root.parent / "ca.pem", folder / "client.pem", folder / "client.key")


@pytest.mark.parametrize("token", [None, "", "token-of-", "token-of-ab", "TOKEN-OF-A"])
def test_wrong_or_missing_token_is_rejected(token_server: LiveServer, token: str | None) -> None:
    with WireClient(token_server.address, Credentials(token)) as client:
        client.hello("a")
        assert client.wait_for_error().code() == grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(ConfigError, match="missing or invalid token"):
        ask_status(token_server.address, Credentials(token))


def test_token_allows_only_its_clients_and_policies(token_server: LiveServer) -> None:
    with WireClient(token_server.address, Credentials("token-of-a")) as client:
        client.hello("a")
        assert client.receive("snapshot").version == 0
    for fields in ({"policy_id": "b"}, {"client_id": "b"}):
        with WireClient(token_server.address, Credentials("token-of-a")) as client:
            client.hello("a", **fields)
            error = client.wait_for_error()
        assert error.code() == grpc.StatusCode.PERMISSION_DENIED
        assert "this token does not allow client" in str(error.details())
    with WireClient(token_server.address, Credentials("token-for-all")) as client:
        client.hello("a", client_id="b")
        assert client.receive("snapshot").version == 0
    assert len(ask_status(token_server.address, Credentials("token-for-all")).policies) == 1


def test_client_with_certificate_is_served(tls_server: LiveServer, authority: trustme.CA, tmp_path: Path) -> None:
    credentials = client_credentials(tmp_path, tls_server, authority)
    with WireClient(tls_server.address, credentials) as client:
        client.hello("tls")
        assert client.receive("snapshot").version == 0
    assert ask_status(tls_server.address, credentials).policies[0].policy_id == "tls"


@pytest.mark.parametrize("how", ["plain", "no certificate", "other CA", "expired"])
def test_client_without_valid_certificate_is_rejected(
    tls_server: LiveServer, authority: trustme.CA, tmp_path: Path, how: str
) -> None:
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    credentials = {
        "plain": Credentials,
        "no certificate": lambda: Credentials.from_files(None, tls_server.root.parent / "ca.pem", None, None),
        "other CA": lambda: client_credentials(tmp_path, tls_server, trustme.CA()),
        "expired": lambda: client_credentials(tmp_path, tls_server, authority, until=yesterday),
    }[how]()
    with WireClient(tls_server.address, credentials) as client:
        client.hello("tls")
        assert client.wait_for_error().code() == grpc.StatusCode.UNAVAILABLE
    with pytest.raises(ConfigError, match="no answer from a server"):
        ask_status(tls_server.address, credentials)
