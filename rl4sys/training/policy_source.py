"""Location of the policy that a user selects: a run, one of its checkpoints or versions, or a policy file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rl4sys.config import Settings, find, load, override, parse, shipped_names
from rl4sys.errors import ConfigError, SpecError

if TYPE_CHECKING:
    from rl4sys.environments.config import EnvironmentConfig
    from rl4sys.policy.base import Policy
    from rl4sys.runs.run import Run
    from rl4sys.spec import Spec
    from rl4sys.training.progress import Observer

_POLICY_SUFFIX = ".safetensors"
_VERSION = "version_"
"""Prefix of the names of stored versions of a hosted policy, before the version number."""


@dataclass(frozen=True)
class PolicySource:
    """Location of a policy: a checkpoint or a stored version of a run, or a policy file outside any run."""

    run: Run | None
    checkpoint: str
    """Name of the checkpoint, or ``version_N`` for a stored version of a hosted policy."""
    file: Path | None = None
    """Policy file; None to load the policy from the checkpoint."""

    @property
    def title(self) -> str:
        if self.run is None:
            return str(self.file)
        kind = "" if self.checkpoint.startswith(_VERSION) else "checkpoint "
        return f"{self.run.path.name}, {kind}{self.checkpoint}"

    @property
    def seed(self) -> int:
        """Seed of the run; 0 for a policy file."""
        return 0 if self.run is None else self.run.config.experiment.seed

    def load_policy(self, observer: Observer) -> Policy:
        from rl4sys.training.checkpointing import load_trained_policy

        if self.run is None:
            return self._load_file()
        policy = self._load_file() if self.file else load_trained_policy(self.run, self.checkpoint, observer)
        if self.run.directory.is_live:
            _note_newer_version(self.run, self.checkpoint, self._version(policy), observer)
        return policy

    def _load_file(self) -> Policy:
        from rl4sys.policy.snapshot_policy import load_policy

        assert self.file is not None  # a source has a run or a file
        try:
            return load_policy(self.file)
        except SpecError as problem:
            raise ConfigError(
                f"'{self.file}' is not a policy file; expected a run, a checkpoint directory or a "
                f"policy.safetensors file ({problem})"
            ) from problem

    def _version(self, policy: Policy) -> int:
        """Return the version of a hosted policy that was loaded from this source."""
        from rl4sys.policy.snapshot_policy import SnapshotPolicy

        if isinstance(policy, SnapshotPolicy):
            return policy.version
        assert self.run is not None  # only a checkpoint of a run has a policy without a snapshot
        return int(self.run.checkpoints.load(self.checkpoint).state["learner"]["version"])


def find_policy_source(text: str, root: Path, checkpoint: str | None) -> PolicySource:
    """Resolve ``text`` to a policy. ``checkpoint`` is a checkpoint or stored version of a run (default: newest)."""
    from rl4sys.runs.directory import CHECKPOINTS
    from rl4sys.runs.query import find_run
    from rl4sys.runs.run import Run

    path = Path(text)
    folder = path.parent if path.is_file() and path.suffix == _POLICY_SUFFIX else path
    is_checkpoint = Run.exists(folder.parent.parent) and folder.parent.name == CHECKPOINTS
    if checkpoint is not None and (is_checkpoint or path.is_file()):
        raise ConfigError(
            f"--checkpoint {checkpoint} applies to runs, but {text} is a checkpoint or policy file; remove --checkpoint"
        )
    if is_checkpoint:
        run = Run.open(folder.parent.parent)
        return PolicySource(run, run.checkpoints.resolve(folder.name))
    if path.is_file():
        return PolicySource(None, "", path)
    return policy_source(Run.open(find_run(text, root)), checkpoint)


def policy_source(run: Run, wanted: str | None) -> PolicySource:
    """Return a checkpoint or stored version of a run; by default the newest version of a hosted policy."""
    stored = run.directory.versions()
    names = {f"{_VERSION}{version}": file for version, file in stored.items()}
    if wanted is None and names:
        wanted = list(names)[-1]
    if wanted in names:
        return PolicySource(run, wanted, names[wanted])
    if wanted is not None and wanted.startswith(_VERSION):
        raise ConfigError(f"{wanted} is not stored in {run.path}; stored versions: {', '.join(names) or 'none'}")
    return PolicySource(run, run.checkpoints.resolve(wanted or "latest"))


def _note_newer_version(run: Run, used: str, version: int, observer: Observer) -> None:
    """Tell the user if the server has a newer version of the policy than the loaded version ``version``."""
    stored = run.directory.versions()
    newest = max([*stored, int(run.directory.status_or_empty().get("version", 0))], default=0)
    if newest <= version:
        return
    remedy = (
        f"use --checkpoint {_VERSION}{max(stored)} for the newest stored version"
        if version < max(stored, default=0)
        else "it is not stored yet; run the command again after the next checkpoint"
    )
    observer.note(f"{used} contains version {version} of the policy, but the server is at version {newest}; {remedy}")


def select_environment(
    source: PolicySource, policy: Policy, name: str | None, assignments: list[str]
) -> EnvironmentConfig:
    """Return the environment called ``name``, or the one the policy was trained in, with overrides applied.

    Raises ConfigError if the policy does not fit the environment.
    """
    from rl4sys.environments.config import EnvironmentConfig

    if name is not None:
        environment = read_environment(name, assignments)
        if environment.family != "pettingzoo":
            check_compatible(environment, policy)
        return environment
    if source.run is None:
        raise ConfigError(
            f"{source.file} does not contain the environment name; add --environment, such as --environment CartPole-v1"
        )
    own = source.run.config.environment
    if not assignments:
        return own
    return parse(EnvironmentConfig, override(own.model_dump(), assignments), "environment")


def read_environment(source: str, assignments: list[str]) -> EnvironmentConfig:
    """Build the environment block from an environment name or a config file, with overrides applied."""
    from rl4sys.environments.config import EnvironmentConfig
    from rl4sys.registry import load_plugins

    settings: Settings = {"name": source}
    if source.endswith((".yaml", ".yml", ".json")) or source in shipped_names("experiments"):
        loaded = load(source)
        load_plugins(loaded.get("plugins") or [], find(source).parent)
        settings = loaded.get("environment") or {}
    return parse(EnvironmentConfig, override(settings, assignments), "environment")


def check_compatible(config: EnvironmentConfig, policy: Policy) -> None:
    """Check that an environment has the shapes of the policy's observations and actions. Raises ConfigError if not."""
    from rl4sys.environments.encoding import Encoding
    from rl4sys.environments.factory import make_environment

    environment, spec = make_environment(config), policy.spec
    offered = Encoding(environment).spec
    environment.close()
    if _shapes(offered) != _shapes(spec):
        raise ConfigError(
            f"environment '{config.name}' has {_shapes(offered)}, but the policy was trained with {_shapes(spec)}; "
            "choose an environment with the same shapes"
        )


def _shapes(spec: Spec) -> str:
    from rl4sys.spec import space_summary

    observations = ", ".join(f"{name} {box.shape}" for name, box in spec.observation.items())
    return f"observations {observations} and actions {space_summary(spec.action)}"
