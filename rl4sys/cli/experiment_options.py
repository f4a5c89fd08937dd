"""Experiment settings from options such as ``--algorithm SAC --domain HalfCheetah``, as in softlearning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rl4sys.config import Settings, load, merged, shipped_names
from rl4sys.errors import ConfigError
from rl4sys.runs.shipped import algorithm_file


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
        """Return the merged shipped settings of algorithm, universe and domain. Skips parts without a shipped file."""
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
            return {"family": universe, "name": name}
        from rl4sys.environments.families.gym import available_version

        available = available_version(name)
        if self.task is not None and available != name:
            note(f"{name} is not available in this version of Gymnasium; using {available}")
        return {"family": universe, "name": available}


def _shipped_parts(algorithm: str, universe: str, domain: str) -> list[str]:
    """Return the names of the shipped files to merge, in order. Names contain the universe unless it is gym."""
    file = domain if universe == "gym" else f"{universe}_{domain}"
    chosen, environments = algorithm_file(algorithm, file), shipped_names("environments")
    return [
        *([chosen] if chosen else []),
        *(f"environments/{name}" for name in (universe, file) if name in environments),
    ]


def option_assignments(
    exp_name: str | None, checkpoint_frequency: int | None, cpus: int | None, gpus: int | None
) -> list[str]:
    """Convert ``--exp-name``, ``--checkpoint-frequency``, ``--cpus`` and ``--gpus`` to ``key=value`` assignments."""
    if gpus is not None and gpus > 1:
        from rl4sys.algorithms.device import num_gpus

        raise ConfigError(
            f"--gpus {gpus} requests {gpus} GPUs, but a run trains on at most one (this machine has {num_gpus()}); "
            "use --gpus 1, or --gpus 0 for the CPU"
        )
    device = None if gpus is None else "cuda" if gpus else "cpu"
    settings = {
        "experiment.name": exp_name,
        "training.checkpoint_frequency": checkpoint_frequency,
        "experiment.threads": cpus,
        "experiment.device": device,
    }
    return [f"{key}={value}" for key, value in settings.items() if value is not None]
