"""Tokens and what they allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl4sys.errors import ConfigError
from rl4sys.server.access import Access


def access(tmp_path: Path, text: str) -> Access:
    (tmp_path / "tokens").write_text(text)
    return Access.from_file(tmp_path / "tokens")


def test_without_a_token_file_everything_is_allowed() -> None:
    assert Access.from_file(None).allows(None, "anyone", "anything")


def test_a_plain_token_reaches_the_clients_own_policy_only(tmp_path: Path) -> None:
    gate = access(tmp_path, "# ours\nsecret-one\n")
    assert gate.allows("secret-one", "cache", "cache")
    assert not gate.allows("secret-one", "cache", "other")
    assert not gate.allows("secret-two", "cache", "cache")
    assert not gate.allows(None, "cache", "cache")
    assert not gate.known("")


def test_a_token_may_name_clients_and_more_policies(tmp_path: Path) -> None:
    gate = access(tmp_path, "secret-one client=cache-* policies=shared,lab-*  # the caches\nsecret-all policies=*\n")
    assert gate.allows("secret-one", "cache-1", "shared")
    assert gate.allows("secret-one", "cache-1", "lab-7")
    assert gate.allows("secret-one", "cache-1", "cache-1")
    assert not gate.allows("secret-one", "disk-1", "disk-1")
    assert not gate.allows("secret-one", "cache-1", "cache-2")
    assert gate.allows("secret-all", "anyone", "anything")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# nothing\n", "holds no token"),
        ("short\n", "5 characters can be guessed"),
        ("long-enough polices=x\n", "'polices' is not known"),
    ],
)
def test_mistakes_in_a_token_file_are_explained(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        access(tmp_path, text)


def test_a_token_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the token file"):
        Access.from_file(tmp_path / "none")
