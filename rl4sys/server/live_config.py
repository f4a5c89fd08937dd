"""Check the learner settings of a client against the limits, and convert them to the config of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rl4sys.algorithms.schedule import Schedule
from rl4sys.config import Settings, did_you_mean
from rl4sys.errors import ConfigError
from rl4sys.learner.config import LearnerConfig
from rl4sys.learner.footprint import learner_cost
from rl4sys.policy.snapshot import Snapshot
from rl4sys.registry import ALGORITHMS
from rl4sys.runs.config import ExperimentConfig, parse_experiment
from rl4sys.server.config import Limits, ServerConfig
from rl4sys.spec import Box, Spec, encoded_size
from rl4sys.wire.columns import MAX_AXES, WIRE_DTYPES
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
"""Names of the learner settings that a client may set."""

ENDLESS = 10**12
"""Value of `total_timesteps` for unlimited training."""

_STALENESS = 4
"""Default `max_staleness`. It is above 0 because clients keep acting while the learner updates."""

_SCHEDULE_STEPS = 10_000
"""Length in steps of an algorithm's default schedules if training is unlimited."""

_ALL_ROLES = "all"

_MAX_NAME_LENGTH = 100
_OVERHEAD_BYTES = 1024
"""Upper bound in bytes for the size of a Snapshot message without the model."""


def live_config(policy_id: str, settings: Settings, server: ServerConfig) -> ExperimentConfig:
    """Return the run config of a policy from its learner settings; raises `ConfigError` if they are invalid."""
    _check_numbers(settings)
    for key in settings:
        if key not in KNOWN:
            known = ", ".join(KNOWN)
            raise ConfigError(f"'{key}' is not a learner setting{did_you_mean(key, KNOWN)} Known: {known}.")
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
            "family": "live",
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
    """Return the learner config of a run.

    For unlimited training, its `total_timesteps` is None, and each schedule must set its own length.
    """
    learner = config.learner(device)
    return learner.model_copy(update={"total_timesteps": None}) if learner.total_timesteps == ENDLESS else learner


def check_spec(spec: Spec, limits: Limits) -> None:
    """Raise `ConfigError` if the spaces exceed the limits or cannot be sent over the wire."""
    size = sum(box.size for box in spec.observation.values())
    if size > limits.max_observation_size:
        raise ConfigError(
            f"the observation has {size:,} elements; the maximum is {limits.max_observation_size:,} "
            "(limits.max_observation_size)"
        )
    for name, box in spec.observation.items():
        if not 1 <= len(name) <= _MAX_NAME_LENGTH or not name.isprintable():
            raise ConfigError(
                f"observation name {name!r:.120} is invalid; use 1 to {_MAX_NAME_LENGTH} printable characters"
            )
        if box.size < 1 or len(box.shape) > MAX_AXES:
            raise ConfigError(
                f"observation '{name:.80}' has the shape {box.shape!s:.80}; expected at least 1 element and at most "
                f"{MAX_AXES} axes"
            )
        if np.dtype(box.dtype) not in WIRE_DTYPES:
            raise ConfigError(
                f"observation '{name}' has the type {box.dtype}, which the protocol does not support; use float32"
            )
    action_size = encoded_size(spec.action)
    if isinstance(spec.action, Box) and spec.action.dtype != "float32":
        raise ConfigError(f"the action has the type {spec.action.dtype}; continuous actions must be float32")
    if not 1 <= action_size <= limits.max_choices:
        raise ConfigError(
            f"the action space has the size {action_size:,}; expected 1 to {limits.max_choices:,} (limits.max_choices)"
        )


def check_cost(spec: Spec, config: LearnerConfig, limits: Limits) -> None:
    """Raise `ConfigError` if the networks or the buffer exceed the limits."""
    cost = learner_cost(spec, config)
    if cost.parameters > limits.max_parameters:
        raise ConfigError(
            f"the networks have {cost.parameters:,} weights; the maximum is {limits.max_parameters:,}. Reduce "
            "network.*.hidden_dims, or increase limits.max_parameters in the server's config"
        )
    if cost.buffer_bytes > limits.max_buffer_bytes:
        raise ConfigError(
            f"the buffer has {cost.buffer_bytes:,} bytes when full; the maximum is {limits.max_buffer_bytes:,}. Reduce "
            "buffer.size, or increase limits.max_buffer_bytes in the server's config"
        )


def check_model_size(snapshot: Snapshot) -> None:
    """Raise `ConfigError` if the model does not fit into one message."""
    size = len(snapshot.to_bytes())
    if size > MAX_MESSAGE_BYTES - _OVERHEAD_BYTES:
        raise ConfigError(
            f"the model for clients has {size:,} bytes, but a message has at most {MAX_MESSAGE_BYTES:,}; use a smaller "
            "policy network"
        )


def _check_no_files(settings: Settings) -> None:
    """Raise `ConfigError` if a client's settings refer to a dataset, which is a file on the server's machine."""
    for name, value in _scalar_settings(settings):
        if "dataset" in name and value is not None:
            raise ConfigError(
                f"clients cannot set {'.'.join(name):.80}, because it refers to a file on the server; set it under "
                "'policies' in the server's config"
            )


def _check_numbers(settings: Settings) -> None:
    """Raise `ConfigError` for infinity, NaN and integers beyond 64 bits, which the JSON parser accepts."""
    for name, value in _scalar_settings(settings):
        if isinstance(value, int | float) and not abs(value) < 2**63:
            raise ConfigError(f"{'.'.join(name):.80} is {value!s:.80}; expected a number between -2**63 and 2**63")


def _scalar_settings(settings: Settings) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path of names and the value of each scalar setting. Not recursive, so any nesting depth works."""
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
    """Return the algorithm's settings. If training is unlimited, default schedules last `_SCHEDULE_STEPS` steps."""
    algorithm = settings.get("algorithm", {})
    name = algorithm.get("name") if isinstance(algorithm, Mapping) else None
    if not isinstance(name, str) or name not in ALGORITHMS or "total_timesteps" in _block(settings, "training"):
        return algorithm
    schedules = {
        option: {"start": field.default.start, "end": field.default.end, "steps": _SCHEDULE_STEPS}
        for option, field in ALGORITHMS.get(name).Config.model_fields.items()
        if isinstance(field.default, Schedule) and not field.default.has_length(None)
    }
    return {**schedules, **algorithm}


def _networks(settings: Any, algorithm: Any) -> Any:
    """Expand ``network.all`` to one entry per network role of the algorithm."""
    if not isinstance(settings, Mapping) or _ALL_ROLES not in settings:
        return settings
    if len(settings) > 1:
        raise ConfigError("network.all cannot be combined with other networks; remove network.all or the others")
    name = algorithm.get("name") if isinstance(algorithm, Mapping) else None
    return {role: settings[_ALL_ROLES] for role in ALGORITHMS.get(str(name)).roles}


def _buffer(settings: Settings, algorithm: Any) -> Any:
    """Return the buffer's settings, with a default staleness limit for on-policy algorithms."""
    buffer = _block(settings, "buffer")
    name = algorithm.get("name") if isinstance(algorithm, Mapping) else None
    if not isinstance(name, str) or name not in ALGORITHMS:
        return buffer
    kind = buffer.get("type", ALGORITHMS.get(name).default_buffer["type"])
    staleness = settings.get("max_staleness")
    if kind == "trajectory":
        return {"max_staleness": _STALENESS if staleness is None else staleness, **buffer}
    return buffer


def _block(settings: Settings, name: str) -> dict[str, Any]:
    block = settings.get(name) or {}
    if not isinstance(block, Mapping):
        raise ConfigError(f"{name} is {block!r:.80}; expected a block of settings")
    return dict(block)
