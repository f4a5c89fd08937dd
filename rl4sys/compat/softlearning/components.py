"""Parsing of the parameters of the factories: a class name and its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl4sys.config import Settings, did_you_mean
from rl4sys.environments.base import Environment
from rl4sys.environments.encoding import Encoding
from rl4sys.errors import ConfigError
from rl4sys.learner.config import LearnerConfig
from rl4sys.runs.config import convert_variant, parse_experiment
from rl4sys.spec import Spec


def split(params: Any, kind: str, known: Sequence[str]) -> tuple[str, Settings]:
    """Return the class name and the arguments of ``{"class_name": …, "config": {…}}``."""
    example = f"{{'class_name': {known[0]!r}, 'config': {{}}}}"
    if not isinstance(params, Mapping) or "class_name" not in params or not params.keys() <= {"class_name", "config"}:
        raise ConfigError(f"the parameters of the {kind} are {params!r:.200}; expected {example}")
    name, config = params["class_name"], params.get("config") or {}
    if name not in known:
        raise ConfigError(f"no {kind} is named {name!r}{did_you_mean(str(name), known)} Known: {', '.join(known)}.")
    return name, dict(config)


def check_arguments(config: Settings, kind: str, known: Sequence[str]) -> None:
    """Raise ConfigError for an argument that is not in ``known``."""
    for name in config:
        if name not in known:
            raise ConfigError(
                f"{name!r} is not an argument of a {kind}{did_you_mean(name, known)} Known: {', '.join(known)}."
            )


def learner_config(variant: Settings) -> LearnerConfig:
    """Return the learner config of a variant. The environment in the variant is ignored."""
    return parse_experiment({**convert_variant(variant), "environment": {"name": "given"}}).learner("cpu")


def spec_of(environment: Environment) -> Spec:
    """Return the `Spec` of an environment: its observation spaces and action space."""
    return Encoding(environment).spec
