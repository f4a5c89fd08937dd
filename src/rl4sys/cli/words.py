"""An experiment in words on the command line, without a file: ``--algorithm SAC --domain HalfCheetah --task v5``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rl4sys import config as files
from rl4sys.config import Settings
from rl4sys.errors import ConfigError

_VARIANT_OF = {"rpo": "ppo", "c51": "dqn", "qr_dqn": "dqn", "rainbow": "dqn"}
"""Algorithms without shipped settings of their own, which begin from those of another."""


@dataclass(frozen=True)
class Words:
    """What is to be learnt, and where, in softlearning's words."""

    algorithm: str | None
    universe: str | None
    domain: str | None
    task: str | None

    @property
    def given(self) -> list[str]:
        """The options that were used."""
        words = {"algorithm": self.algorithm, "universe": self.universe, "domain": self.domain, "task": self.task}
        return [f"--{name}" for name, word in words.items() if word is not None]

    def settings(self, note: Callable[[str], None]) -> Settings:
        """The shipped settings of the algorithm, and those of the environment where there are some."""
        if self.algorithm is None or self.domain is None:
            missing = "--algorithm, such as SAC," if self.algorithm is None else "--domain, such as HalfCheetah,"
            raise ConfigError(f"{missing} is missing: without a config, say algorithm, domain and task")
        algorithm = self.algorithm.lower().replace("-", "_")
        settings: Settings = {"experiment": {"name": f"{algorithm}_{self.domain.lower()}"}}
        shipped = {"algorithms": _VARIANT_OF.get(algorithm, algorithm), "environments": self.domain.lower()}
        for group, name in shipped.items():
            if name in files.shipped_names(group):
                settings = files.merged(settings, files.load(f"{group}/{name}"))
        return files.merged(settings, {"algorithm": {"name": algorithm}, "environment": self._environment(note)})

    def _environment(self, note: Callable[[str], None]) -> Settings:
        universe = (self.universe or "gym").lower()
        name = "-".join(filter(None, (self.domain, self.task)))
        if universe != "gym":
            return {"wrapper": universe, "name": name}
        from rl4sys.environments.versions import available_version

        available = available_version(name)
        if self.task is not None and available != name:
            note(f"{name} is not to be had from this Gymnasium; {available} is taken")
        return {"wrapper": universe, "name": available}


def changes(exp_name: str | None, checkpoint_frequency: int | None, cpus: int | None, gpus: int | None) -> list[str]:
    """Other words of the command line, as settings."""
    device = None if gpus is None else "cuda" if gpus else "cpu"
    settings = {
        "experiment.name": exp_name,
        "training.checkpoint_frequency": checkpoint_frequency,
        "experiment.threads": cpus,
        "experiment.device": device,
    }
    return [f"{key}={value}" for key, value in settings.items() if value is not None]
