"""Task of a learner process, and file names in a policy's run directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rl4sys.runs.directory import RunDirectory
from rl4sys.server.config import ServerConfig

TENSORBOARD_LINKS = "rl4sys-{algorithm}-info"
"""Directory in the server's root that links to the event files of all policies of one algorithm."""


@dataclass(frozen=True)
class LearnerTask:
    """Policy to train in a learner process. `spec` and `settings` (JSON texts) are used only to create the policy."""

    policy_id: str
    server: ServerConfig
    spec: str = ""
    settings: str = "{}"
    remote: bool = False
    """True if the first client uses remote inference; in this case the policy need not be exportable."""

    @property
    def path(self) -> Path:
        return self.server.root / self.policy_id

    @property
    def exists(self) -> bool:
        return RunDirectory(self.path).is_live
