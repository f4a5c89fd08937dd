"""What a client asks a learner to be, checked against limits and turned into the config of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rl4sys.algorithms.schedule import Schedule
from rl4sys.config import Settings, did_you_mean
from rl4sys.errors import ConfigError
from rl4sys.experiment.config import ExperimentConfig, parse_experiment
from rl4sys.learner import LearnerConfig, learner_cost
from rl4sys.policy.snapshot import Snapshot
from rl4sys.registry import ALGORITHMS
from rl4sys.server.config import Limits, ServerConfig
from rl4sys.spec import Box, Spec, numbers_of
from rl4sys.wire.columns import CARRIED, MOST_AXES
from rl4sys.wire.service import MAX_MESSAGE_BYTES

KNOWN = (
    "algorithm",
    "network",
    "buffer",
    "training",
    "normalize_obs",
    "normalize_reward",
    "max_staleness",
    "seed",
    "warm_start",
)
"""What a client may decide about its learner."""

ENDLESS = 10**12
"""Steps of a system that runs for ever."""

_STALENESS = 4
"""Versions that fresh experience may lag by default: a client acts on while the learner learns."""

_SCHEDULE_STEPS = 10_000
"""What an algorithm by custom stretches over a part of its training takes so long where that has no end."""

_EVERY_ROLE = "all"

_LONGEST_NAME = 100
_ENVELOPE_BYTES = 1024
"""What a message has around a model."""


def live_config(policy_id: str, settings: Settings, server: ServerConfig) -> ExperimentConfig:
    """The run config of a policy with these learner settings."""
    _check_numbers(settings)
    for key in settings:
        if key not in KNOWN:
            known = ", ".join(KNOWN)
            raise ConfigError(f"{key} is not a setting of a learner{did_you_mean(key, KNOWN)} Known: {known}.")
    if policy_id not in server.policies:
        _check_no_files(settings)
    algorithm = _algorithm(settings)
    blocks: Settings = {
        "experiment": {
            "name": policy_id,
            "seed": settings.get("seed", 0),
            "device": server.device,
            "threads": server.threads,
        },
        "algorithm": algorithm,
        "environment": {
            "name": policy_id,
            "wrapper": "live",
            "normalize_obs": settings.get("normalize_obs", False),
            "normalize_reward": settings.get("normalize_reward", False),
        },
        "warm_start": settings.get("warm_start"),
        "network": _networks(settings.get("network", {}), algorithm),
        "buffer": _buffer(settings, algorithm),
        "training": {
            "total_timesteps": ENDLESS,
            **_block(settings, "training"),
            "keep_checkpoints": server.keep_checkpoints,
        },
        "logging": {"terminal": False, "tensorboard": server.tensorboard, "frequency": server.log_frequency},
        "alerts": server.alerts.model_dump(mode="json"),
    }
    return parse_experiment(blocks)


def live_learner_config(config: ExperimentConfig, device: str) -> LearnerConfig:
    """The learner's part; a system without an end has no point where schedules could end by themselves."""
    learner = config.learner(device)
    return learner.model_copy(update={"total_timesteps": None}) if learner.total_timesteps == ENDLESS else learner


def check_spec(spec: Spec, limits: Limits) -> None:
    seen = sum(box.size for box in spec.observation.values())
    if seen > limits.max_observation_size:
        raise ConfigError(f"an observation of {seen:,} numbers; this server takes {limits.max_observation_size:,}")
    for name, box in spec.observation.items():
        if not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
            raise ConfigError(f"an observation is named {name!r:.120}; use 1 to {_LONGEST_NAME} characters that print")
        if box.size < 1 or len(box.shape) > MOST_AXES:
            raise ConfigError(
                f"the observation {name:.80} has the shape {box.shape!s:.80}; it should hold at least 1 number, "
                f"on at most {MOST_AXES} axes"
            )
        if np.dtype(box.dtype) not in CARRIED:
            raise ConfigError(
                f"the observation {name} is of type {box.dtype}, which the wire does not carry; use float32"
            )
    done = numbers_of(spec.action)
    if isinstance(spec.action, Box) and spec.action.dtype != "float32":
        raise ConfigError(f"an action of type {spec.action.dtype}; continuous actions are float32")
    if not 1 <= done <= limits.max_choices:
        raise ConfigError(f"an action space of {done:,}; this server takes 1 to {limits.max_choices:,}")


def check_cost(spec: Spec, config: LearnerConfig, limits: Limits) -> None:
    cost = learner_cost(spec, config)
    if cost.parameters > limits.max_parameters:
        raise ConfigError(
            f"these networks have {cost.parameters:,} weights; this server takes {limits.max_parameters:,}. "
            "Make network.*.hidden_dims smaller, or raise limits.max_parameters in the server's config"
        )
    if cost.buffer_bytes > limits.max_buffer_bytes:
        raise ConfigError(
            f"a buffer of {cost.buffer_bytes:,} bytes when full; this server takes {limits.max_buffer_bytes:,}. "
            "Lower buffer.size, or raise limits.max_buffer_bytes in the server's config"
        )


def check_size(snapshot: Snapshot) -> None:
    """A model that no message can carry would reach no client."""
    size = len(snapshot.to_bytes())
    if size > MAX_MESSAGE_BYTES - _ENVELOPE_BYTES:
        raise ConfigError(
            f"the policy takes {size:,} bytes as a model for clients, and a message carries {MAX_MESSAGE_BYTES:,}; "
            "make the network that acts smaller"
        )


def _check_no_files(settings: Settings) -> None:
    """A client has no say in what is read on the server's machine."""
    for name, value in _leaves(settings):
        if "dataset" in name and value is not None:
            raise ConfigError(
                f"{'.'.join(name):.80} is for files of the server, which a client cannot name; write this policy's "
                "settings under `policies:` in the server's config"
            )


def _check_numbers(settings: Settings) -> None:
    """Refuse what JSON can write and nothing can count with: infinities, NaN, integers beyond 64 bits."""
    for name, value in _leaves(settings):
        if isinstance(value, int | float) and not abs(value) < 2**63:
            raise ConfigError(f"{'.'.join(name):.80} is {value!s:.80}; numbers lie between -2**63 and 2**63")


def _leaves(settings: Settings) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value within, with the names that lead to it; by a stack of its own, whatever the depth."""
    blocks: list[tuple[tuple[str, ...], Any]] = [((), settings)]
    while blocks:
        name, value = blocks.pop()
        if isinstance(value, Mapping):
            blocks += [((*name, str(key)), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            blocks += [(name, inner) for inner in value]
        else:
            yield name, value


def _algorithm(settings: Settings) -> Any:
    """The algorithm's settings; its own schedules, where the client says nothing, end without an end of training."""
    algorithm = settings.get("algorithm", {})
    name = algorithm.get("name") if isinstance(algorithm, Mapping) else None
    if not isinstance(name, str) or name not in ALGORITHMS or "total_timesteps" in _block(settings, "training"):
        return algorithm
    lines = {
        option: {"start": field.default.start, "end": field.default.end, "steps": _SCHEDULE_STEPS}
        for option, field in ALGORITHMS.get(name).Config.model_fields.items()
        if isinstance(field.default, Schedule) and not field.default.has_length(None)
    }
    return {**lines, **algorithm}


def _networks(settings: Any, algorithm: Any) -> Any:
    """One description for ``all`` networks stands for one each."""
    if not isinstance(settings, Mapping) or _EVERY_ROLE not in settings:
        return settings
    if len(settings) > 1:
        raise ConfigError("network.all describes every network; remove it, or the others")
    name = algorithm.get("name") if isinstance(algorithm, Mapping) else None
    return {role: settings[_EVERY_ROLE] for role in ALGORITHMS.get(str(name)).roles}


def _buffer(settings: Settings, algorithm: Any) -> Any:
    """The buffer's settings; on-policy learners of a live system must bear some staleness."""
    buffer = _block(settings, "buffer")
    name = algorithm.get("name") if isinstance(algorithm, Mapping) else None
    if not isinstance(name, str) or name not in ALGORITHMS:
        return buffer
    kind = buffer.get("type", ALGORITHMS.get(name).usual_buffer["type"])
    staleness = settings.get("max_staleness")
    if kind == "trajectory":
        return {"max_staleness": _STALENESS if staleness is None else staleness, **buffer}
    return buffer


def _block(settings: Settings, name: str) -> dict[str, Any]:
    block = settings.get(name) or {}
    if not isinstance(block, Mapping):
        raise ConfigError(f"{name} is {block!r:.80}; it should be a block of settings")
    return dict(block)
