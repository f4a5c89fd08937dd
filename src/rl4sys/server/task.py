"""What a worker is given to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rl4sys.server.config import ServerConfig

LIVE = "configs/live.json"
"""What makes a run directory a policy of a server: its spec, its learner settings as given, its lineage."""

VERSIONS = "versions"
"""The folder of a policy's newest models."""


@dataclass(frozen=True)
class Task:
    """Which policy to learn; ``spec`` and ``settings``, both JSON, are for one that does not exist yet."""

    policy_id: str
    server: ServerConfig
    spec: str = ""
    settings: str = "{}"
    remote: bool = False
    """Whether who wants it does without a model, so that a policy which no client can run may be made."""

    @property
    def path(self) -> Path:
        return self.server.root / self.policy_id

    @property
    def exists(self) -> bool:
        return (self.path / LIVE).is_file()
