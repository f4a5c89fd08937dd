"""Experiment settings from options: ``--algorithm SAC --domain HalfCheetah --task v5``, as in softlearning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rl4sys.config import Settings, load, merged, shipped_names
from rl4sys.errors import ConfigError

_BASE_ALGORITHM = {"rpo": "ppo", "c51": "dqn", "qr_dqn": "dqn", "rainbow": "dqn"}
"""Algorithms without shipped settings, and the algorithm whose settings they start from."""


@dataclass(frozen=True)
class ExperimentOptions:
    """Algorithm and environment given as options instead of a config file."""

    algorithm: str | None
    universe: str | None
    domain: str | None
    task: str | None

    @property
    def given(self) -> list[str]:
        """Names of the given options, such as --algorithm."""
        options = {"algorithm": self.algorithm, "universe": self.universe, "domain": self.domain, "task": self.task}
        return [f"--{name}" for name, value in options.items() if value is not None]

    def to_settings(self, note: Callable[[str], None]) -> Settings:
        """Merge the shipped settings of the algorithm, of the universe and of the domain, as far as there are any."""
        if self.algorithm is None or self.domain is None:
            missing = "--algorithm, such as SAC," if self.algorithm is None else "--domain, such as HalfCheetah,"
            raise ConfigError(f"{missing} is missing; without a config file, --algorithm and --domain are required")
        algorithm = self.algorithm.lower().replace("-", "_")
        settings: Settings = {"experiment": {"name": f"{algorithm}_{self.domain.lower()}"}}
        universe = (self.universe or "gym").lower()
        for name in _shipped_parts(algorithm, universe, self.domain.lower()):
            settings = merged(settings, load(name))
        return merged(settings, {"algorithm": {"name": algorithm}, "environment": self._environment(universe, note)})

    def _environment(self, universe: str, note: Callable[[str], None]) -> Settings:
        name = "-".join(filter(None, (self.domain, self.task)))
        if universe != "gym":
            return {"wrapper": universe, "name": name}
        from rl4sys.environments.families.gym import available_version

        available = available_version(name)
        if self.task is not None and available != name:
            note(f"{name} is not available in this version of Gymnasium; using {available}")
        return {"wrapper": universe, "name": available}


def _shipped_parts(algorithm: str, universe: str, domain: str) -> list[str]:
    """Return the shipped files to merge, in order. Files of domains outside Gymnasium start with the universe."""
    file = domain if universe == "gym" else f"{universe}_{domain}"
    tuned, base = f"{algorithm}_{file}", _BASE_ALGORITHM.get(algorithm, algorithm)
    algorithms, environments = shipped_names("algorithms"), shipped_names("environments")
    chosen = [f"algorithms/{tuned if tuned in algorithms else base}"] if {tuned, base} & {*algorithms} else []
    return [*chosen, *(f"environments/{name}" for name in (universe, file) if name in environments)]


def option_assignments(
    exp_name: str | None, checkpoint_frequency: int | None, cpus: int | None, gpus: int | None
) -> list[str]:
    """Translate the options that also apply to config files to ``key=value`` assignments."""
    if gpus is not None and gpus > 1:
        from rl4sys.algorithms.device import num_gpus

        raise ConfigError(
            f"--gpus {gpus} asks for {gpus} GPUs; this machine has {num_gpus()}, and a run trains on one at most. "
            "Use --gpus 1, or --gpus 0 for the CPU"
        )
    device = None if gpus is None else "cuda" if gpus else "cpu"
    settings = {
        "experiment.name": exp_name,
        "training.checkpoint_frequency": checkpoint_frequency,
        "experiment.threads": cpus,
        "experiment.device": device,
    }
    return [f"{key}={value}" for key, value in settings.items() if value is not None]
