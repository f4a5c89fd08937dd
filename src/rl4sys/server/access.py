"""Who may use the server: tokens, and which clients and policies each is good for.

A token file has a token a line, with what it allows after it::

    k3J9…              any client, each for the policy that bears its own id
    x8Qp… client=cache-*                     clients whose id fits the pattern
    Zw1m… client=cache-* policies=cache,lab-*   and these policies besides their own
    aa7L… policies=*                         everything
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from rl4sys.errors import ConfigError

_SHORTEST = 8


@dataclass(frozen=True)
class Grant:
    """A token and what it allows."""

    token: bytes
    client: str = "*"
    policies: tuple[str, ...] = ()

    def allows(self, client_id: str, policy_id: str) -> bool:
        own = client_id == policy_id
        return fnmatchcase(client_id, self.client) and (own or any(fnmatchcase(policy_id, p) for p in self.policies))


class Access:
    """Finds what a token allows. Without a token file, everyone may do everything."""

    def __init__(self, grants: Iterable[Grant] | None) -> None:
        self._grants = None if grants is None else tuple(grants)

    @classmethod
    def from_file(cls, path: Path | None) -> Access:
        if path is None:
            return cls(None)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as problem:
            raise ConfigError(f"cannot read the token file {path}: {problem}") from problem
        grants = [_grant(line, f"{path}:{n}") for n, line in enumerate(lines, 1) if line.partition("#")[0].strip()]
        if not grants:
            raise ConfigError(f"the token file {path} holds no token; write one a line, or leave --token-file out")
        return cls(grants)

    @property
    def open(self) -> bool:
        return self._grants is None

    def known(self, token: str | None) -> bool:
        """Whether the token is one of ours."""
        return self._grants is None or self._find(token) is not None

    def allows(self, token: str | None, client_id: str, policy_id: str) -> bool:
        if self._grants is None:
            return True
        grant = self._find(token)
        return grant is not None and grant.allows(client_id, policy_id)

    def _find(self, token: str | None) -> Grant | None:
        given = (token or "").encode()
        # All are compared, each in constant time, so that the answer's timing tells nothing about any.
        matches = [grant for grant in self._grants or () if hmac.compare_digest(grant.token, given)]
        return matches[0] if matches else None


def _grant(line: str, where: str) -> Grant:
    token, *words = line.partition("#")[0].split()
    if len(token) < _SHORTEST:
        raise ConfigError(f"{where}: a token of {len(token)} characters can be guessed; use at least {_SHORTEST}")
    options = dict(word.partition("=")[::2] for word in words)
    if unknown := set(options) - {"client", "policies"}:
        raise ConfigError(f"{where}: {sorted(unknown)[0]!r} is not known; after a token come client= and policies=")
    policies = tuple(filter(None, options.get("policies", "").split(",")))
    return Grant(token.encode(), options.get("client", "*"), policies)
