"""Token files and permissions of tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl4sys.errors import ConfigError
from rl4sys.server.access import Access


def read_tokens(tmp_path: Path, text: str) -> Access:
    (tmp_path / "tokens").write_text(text)
    return Access.from_file(tmp_path / "tokens")


def test_access_without_token_file_allows_everything() -> None:
    assert Access.from_file(None).allows(None, "anyone", "anything")


def test_plain_token_allows_only_the_policy_with_the_client_id(tmp_path: Path) -> None:
    permissions = read_tokens(tmp_path, "# comment\nsecret-one\n")
    assert permissions.allows("secret-one", "cache", "cache")
    assert not permissions.allows("secret-one", "cache", "other")
    assert not permissions.allows("secret-two", "cache", "cache")
    assert not permissions.allows(None, "cache", "cache")
    assert not permissions.is_known("")


def test_token_allows_listed_clients_and_policies(tmp_path: Path) -> None:
    permissions = read_tokens(
        tmp_path, "secret-one client=cache-* policies=shared,lab-*  # comment\nsecret-all policies=*\n"
    )
    assert permissions.allows("secret-one", "cache-1", "shared")
    assert permissions.allows("secret-one", "cache-1", "lab-7")
    assert permissions.allows("secret-one", "cache-1", "cache-1")
    assert not permissions.allows("secret-one", "disk-1", "disk-1")
    assert not permissions.allows("secret-one", "cache-1", "cache-2")
    assert permissions.allows("secret-all", "anyone", "anything")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# nothing\n", "contains no token"),
        ("short\n", "the token has 5 characters; use at least 8"),
        ("long-enough polices=x\n", "unknown option 'polices'"),
    ],
)
def test_invalid_token_file_is_rejected(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        read_tokens(tmp_path, text)


def test_missing_token_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the token file"):
        Access.from_file(tmp_path / "none")
