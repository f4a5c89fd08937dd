"""Conversion of the arguments of `rl4sys.train` to an experiment config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl4sys.config import Settings, change, find, inherited, load, merged
from rl4sys.environments.provided import environment_settings
from rl4sys.errors import ConfigError
from rl4sys.registry import ALGORITHMS
from rl4sys.runs.config import ExperimentConfig, convert_variant, parse_experiment
from rl4sys.runs.shipped import algorithm_defaults

Source = str | Path | Mapping[str, Any] | ExperimentConfig
"""Experiment, as the name of a shipped experiment, the path of a config file, settings, or a typed config."""

_NAME_CHARACTERS = "_.-"


@dataclass(frozen=True)
class ExperimentArguments:
    """Arguments that select and change an experiment."""

    source: Source | None = None
    algorithm: Any = None
    environment: Any = None
    changes: Mapping[str, Any] | None = None

    def parse(self, note: Callable[[str], None]) -> ExperimentConfig:
        """Return the experiment config with all changes. Raises a `ConfigError` that lists all invalid settings."""
        settings, beside = self._base(note)
        if self.algorithm is not None:
            settings = self._with_algorithm(settings)
        if self.environment is not None:
            settings = {**settings, "environment": _environment(settings, self.environment)}
        for key, value in (self.changes or {}).items():
            settings = change(settings, key, value)
        return parse_experiment(_named(settings), beside=beside)

    def _base(self, note: Callable[[str], None]) -> tuple[Settings, Path | None]:
        if self.source is None:
            self._check_complete()
            return {}, None
        return read_source(self.source, note)

    def _check_complete(self) -> None:
        if self.algorithm is None or self.environment is None:
            missing = 'algorithm="ppo"' if self.algorithm is None else 'environment="CartPole-v1"'
            raise ConfigError(
                f"{missing.partition('=')[0]} is missing: give the name of an experiment, such as "
                f'train("ppo_cartpole"), or algorithm and environment, such as {missing}'
            )

    def _with_algorithm(self, settings: Settings) -> Settings:
        block = self.algorithm if isinstance(self.algorithm, Mapping) else {"name": _algorithm_name(self.algorithm)}
        named = block.get("name", settings.get("algorithm", {}).get("name"))
        before = settings.get("algorithm")
        replaced = isinstance(before, Mapping) and before.get("name") == named
        base = settings if replaced else {**_without_components(settings), **algorithm_defaults(str(named))}
        return merged(base, {"algorithm": {**block, "name": named}})


def read_source(source: Source, note: Callable[[str], None]) -> tuple[Settings, Path | None]:
    """Return the settings of an experiment, and the folder that relative paths in the settings refer to, or None."""
    if isinstance(source, ExperimentConfig):
        return source.to_settings(), None
    if isinstance(source, Mapping):
        given = dict(source)
        return convert_variant(merged(inherited(given, Path("settings")), given), note), None
    if isinstance(source, str | Path):
        return convert_variant(load(source), note), find(str(source)).parent
    raise ConfigError(
        f"the experiment is {source!r:.80}; expected the name of a shipped experiment, the path of a config file, a "
        "dict of settings or an ExperimentConfig"
    )


def _algorithm_name(algorithm: Any) -> str:
    """Return the registered name of an algorithm that is given by name or as a class."""
    if isinstance(algorithm, str):
        return algorithm.lower().replace("-", "_")
    for name in ALGORITHMS.own_names():
        if ALGORITHMS[name] is algorithm:
            return name
    raise ConfigError(
        f"algorithm is {algorithm!r:.80}; expected a name, such as 'ppo', or a class registered with "
        "@register_algorithm"
    )


def _without_components(settings: Settings) -> Settings:
    """Return the settings without the blocks that depend on the algorithm: algorithm, network and buffer."""
    return {key: value for key, value in settings.items() if key not in ("algorithm", "network", "buffer")}


def _environment(settings: Settings, environment: Any) -> Settings:
    """Return the block of a new environment; keeps ``num_envs`` and normalization of the previous environment block."""
    block = environment_settings(environment)
    before = settings.get("environment") or {}
    kept = {key: before[key] for key in ("num_envs", "normalize_obs", "normalize_reward") if key in before}
    return {**kept, **block}


def _named(settings: Settings) -> Settings:
    """Return the settings; an experiment without a name gets the names of its algorithm and environment."""
    experiment = settings.get("experiment") or {}
    if not isinstance(experiment, Mapping) or experiment.get("name"):
        return settings
    blocks = [settings.get(block) or {} for block in ("algorithm", "environment")]
    names = [str(block.get("name", "")) for block in blocks if isinstance(block, Mapping)]
    name = "_".join(filter(None, (_file_name(part) for part in names)))
    return {**settings, "experiment": {**experiment, "name": name}} if name else settings


def _file_name(name: str) -> str:
    """Convert the name of an algorithm or environment to a run name; of ``module:Class``, use only the class."""
    last = name.rpartition(":")[2].rpartition("/")[2].lower()
    return "".join(c if c.isascii() and (c.isalnum() or c in _NAME_CHARACTERS) else "_" for c in last).strip("_")
