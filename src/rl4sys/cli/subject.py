"""What a user points at to see it act: a run, one of its checkpoints, or the file of a policy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rl4sys import config as files
from rl4sys.cli.check_env import environment_block
from rl4sys.cli.fit import check_fit
from rl4sys.errors import ConfigError

if TYPE_CHECKING:
    from rl4sys.environments.config import EnvironmentConfig
    from rl4sys.experiment.run import Run
    from rl4sys.policy.base import Policy
    from rl4sys.trainer import Observer

_POLICY_FILE = ".safetensors"


@dataclass(frozen=True)
class Place:
    """Where the policy lies: in a checkpoint of a run, or in a file without one."""

    run: Run | None
    checkpoint: str
    file: Path | None = None

    @property
    def title(self) -> str:
        return str(self.file) if self.run is None else f"{self.run.path.name}, checkpoint {self.checkpoint}"

    @property
    def seed(self) -> int:
        return 0 if self.run is None else self.run.config.experiment.seed

    def policy(self, observer: Observer) -> Policy:
        from rl4sys.policy.portable import load_policy
        from rl4sys.trainer import trained_policy

        if self.run is None:
            assert self.file is not None  # one of the two is there
            return load_policy(self.file)
        return trained_policy(self.run, self.checkpoint, observer)


def find_place(text: str, root: Path, checkpoint: str | None) -> Place:
    """The place that ``text`` names; ``checkpoint`` chooses one of a run's, which is otherwise its latest."""
    from rl4sys.experiment.run import Run
    from rl4sys.experiment.store import find_run

    path = Path(text)
    folder = path.parent if path.is_file() and path.suffix == _POLICY_FILE else path
    inside = Run.exists(folder.parent.parent) and folder.parent.name == "checkpoints"
    if checkpoint is not None and (inside or path.is_file()):
        raise ConfigError(f"--checkpoint {checkpoint} chooses one of a run's, and {text} is one already; leave it out")
    if inside:
        run = Run.open(folder.parent.parent)
        return Place(run, run.checkpoints.resolve(folder.name))
    if path.is_file():
        return Place(None, "", path)
    run = Run.open(find_run(text, root))
    return Place(run, run.checkpoints.resolve(checkpoint or "latest"))


def environment_of(place: Place, policy: Policy, named: str | None, changes: list[str]) -> EnvironmentConfig:
    """Its own environment, or the one that the user names, in which it must be able to act."""
    from rl4sys.environments.config import EnvironmentConfig

    if named is not None:
        where = environment_block(named, changes)
        if where.wrapper != "pettingzoo":
            check_fit(where, policy)
        return where
    if place.run is None:
        raise ConfigError(f"{place.file} holds a policy and not what it acts in; name that: --environment CartPole-v1")
    own = place.run.config.environment
    return files.parse(EnvironmentConfig, files.override(own.model_dump(), changes), "environment") if changes else own
