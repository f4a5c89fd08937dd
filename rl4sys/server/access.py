"""Access control: each token allows certain clients to use certain policies.

A token file has one token per line, followed by its permissions::

    k3J9…                                       any client, but only the policy with the client's own id
    x8Qp… client=cache-*                        clients with a matching id, but only the policy with their own id
    Zw1m… client=cache-* policies=cache,lab-*   clients with a matching id: their own policy and all matching policies
    aa7L… policies=*                            any client and any policy
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from rl4sys.errors import ConfigError

_MIN_LENGTH = 8


@dataclass(frozen=True)
class Grant:
    """Permissions of one token. `client` is a wildcard pattern of client ids, `policies` are patterns of policy ids."""

    token: bytes
    client: str = "*"
    policies: tuple[str, ...] = ()

    def allows(self, client_id: str, policy_id: str) -> bool:
        own = client_id == policy_id
        return fnmatchcase(client_id, self.client) and (own or any(fnmatchcase(policy_id, p) for p in self.policies))


class Access:
    """Permissions of all tokens. Without a token file, every client may use every policy."""

    def __init__(self, grants: Iterable[Grant] | None) -> None:
        self._grants = None if grants is None else tuple(grants)

    @classmethod
    def from_file(cls, path: Path | None) -> Access:
        """Read a token file; None allows everything. Raises `ConfigError` if the file is invalid or has no token."""
        if path is None:
            return cls(None)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the token file {path}: {error}") from error
        grants = [
            _parse_grant(line, f"{path}:{n}") for n, line in enumerate(lines, 1) if line.partition("#")[0].strip()
        ]
        if not grants:
            raise ConfigError(
                f"the token file {path} contains no token; write one token per line, or omit --token-file"
            )
        return cls(grants)

    def is_known(self, token: str | None) -> bool:
        """Return True if the token is in the token file, or if there is no token file."""
        return self._grants is None or self._find(token) is not None

    def allows(self, token: str | None, client_id: str, policy_id: str) -> bool:
        if self._grants is None:
            return True
        grant = self._find(token)
        return grant is not None and grant.allows(client_id, policy_id)

    def _find(self, token: str | None) -> Grant | None:
        given = (token or "").encode()
        # The comparisons take constant time, so that response times reveal nothing about the tokens.
        matches = [grant for grant in self._grants or () if hmac.compare_digest(grant.token, given)]
        return matches[0] if matches else None


def _parse_grant(line: str, location: str) -> Grant:
    token, *words = line.partition("#")[0].split()
    if len(token) < _MIN_LENGTH:
        raise ConfigError(f"{location}: the token has {len(token)} characters; use at least {_MIN_LENGTH}")
    options = dict(word.partition("=")[::2] for word in words)
    if unknown := set(options) - {"client", "policies"}:
        raise ConfigError(f"{location}: unknown option {sorted(unknown)[0]!r}; expected client= or policies=")
    policies = tuple(filter(None, options.get("policies", "").split(",")))
    return Grant(token.encode(), options.get("client", "*"), policies)
