"""Configuration of a Learner, and parsing of the config blocks it is built from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import SerializeAsAny

from rl4sys.algorithms.accumulation import ACCUMULATE
from rl4sys.algorithms.actor_critic import TRUNK
from rl4sys.algorithms.base import AlgorithmConfig, AlgorithmSetup, Backend
from rl4sys.algorithms.imitation import WarmStartConfig
from rl4sys.buffers.base import AUTO, NO_RESOURCES, AutoSize, BufferConfig, BufferResources
from rl4sys.config import Config, did_you_mean, parse
from rl4sys.errors import ConfigError
from rl4sys.networks.base import NetworkConfig
from rl4sys.registry import ALGORITHMS, BUFFERS, NETWORKS, Registry
from rl4sys.spec import Spec


class LearnerConfig(Config):
    """Complete configuration of a Learner, independent of the source of experience."""

    algorithm: SerializeAsAny[AlgorithmConfig]
    networks: dict[str, SerializeAsAny[NetworkConfig]]
    buffer: SerializeAsAny[BufferConfig]
    normalize_obs: bool = False
    normalize_reward: bool = False
    warm_start: WarmStartConfig | None = None
    device: str = "cpu"
    backend: Backend = "auto"
    total_timesteps: int | None = None


def parse_algorithm(settings: Any) -> AlgorithmConfig:
    """Parse the ``algorithm`` block with the config class of the named algorithm."""
    name = _named(settings, "algorithm", "name", ALGORITHMS)
    model = ALGORITHMS.get(name).Config
    if ACCUMULATE in settings and ACCUMULATE not in model.model_fields:
        raise ConfigError(
            f"algorithm.{ACCUMULATE} is not a setting of {name}, which does not support gradient accumulation; "
            "remove it, or use an algorithm that supports it, such as ppo, dqn or sac"
        )
    options: AlgorithmConfig = parse(model, settings, "algorithm")
    return options


def parse_networks(settings: Any, algorithm: str) -> dict[str, NetworkConfig]:
    """Parse the ``network`` block: one network config per role. Roles may be missing."""
    roles = (*ALGORITHMS.get(algorithm).roles, *getattr(ALGORITHMS.get(algorithm), "optional_roles", ()))
    if not isinstance(settings, Mapping):
        raise ConfigError(f"network is {settings!r:.80}; expected a block with {' and '.join(roles)}")
    for role in settings:
        if not roles:
            raise ConfigError(
                f"network.{role} has no effect, because {algorithm} builds its networks itself; remove the block, and "
                "put settings of the networks under algorithm"
            )
        if role not in roles:
            why = (
                f" {algorithm} updates actor and critic in separate steps, so they cannot share a trunk."
                if role == TRUNK
                else ""
            )
            raise ConfigError(
                f"network.{role} is not a network of {algorithm}{did_you_mean(str(role), roles)} "
                f"Networks of {algorithm}: {', '.join(roles)}.{why * ('actor' in roles)}"
            )
    return {str(role): _parse_network(options, f"network.{role}") for role, options in settings.items()}


def parse_buffer(settings: Any, algorithm: str) -> BufferConfig:
    """Parse the ``buffer`` block with the config class of its type; missing keys take the algorithm's defaults."""
    if isinstance(settings, Mapping):
        default = ALGORITHMS.get(algorithm).default_buffer
        settings = _with_largest_size({**default, **settings}, default)
    options: BufferConfig = parse(BUFFERS.get(_named(settings, "buffer", "type", BUFFERS)).Config, settings, "buffer")
    return options


def _with_largest_size(settings: Mapping[str, Any], default: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace ``size: auto`` by an `AutoSize` with the maximum size, the default of the algorithm."""
    if settings.get("size") != AUTO:
        return settings
    if "pools" in settings:
        raise ConfigError(
            "buffer.size is 'auto', which a union of pools does not support; set the size of each pool, or set "
            "buffer.size to a number of steps"
        )
    return {**settings, "size": AutoSize(default["size"])}


def algorithm_setup(
    spec: Spec, config: LearnerConfig, seed: np.random.SeedSequence, resources: BufferResources = NO_RESOURCES
) -> AlgorithmSetup[AlgorithmConfig]:
    """Collect the constructor arguments of the configured algorithm."""
    return AlgorithmSetup(
        spec=spec,
        options=config.algorithm,
        networks=config.networks,
        buffer=config.buffer,
        seed=seed,
        device=config.device,
        backend=config.backend,
        total_timesteps=config.total_timesteps,
        warm=config.warm_start is not None,
        resources=resources,
    )


def _parse_network(settings: Any, at: str) -> NetworkConfig:
    kind = _named({"type": "mlp", **settings} if isinstance(settings, Mapping) else settings, at, "type", NETWORKS)
    network = NETWORKS.get(kind)
    if not hasattr(network, "Config"):
        raise ConfigError(
            f"the class of network type {kind!r} has no attribute Config; set Config to the class of its options, such "
            "as rl4sys.networks.base.NetworkConfig"
        )
    options: NetworkConfig = parse(network.Config, settings, at)
    return options


def _named(settings: Any, at: str, key: str, registry: Registry) -> str:
    """Return the component name in a config block: the value of ``key``, such as ``type``."""
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{at} is {settings!r:.80}; expected a block of settings (key: value)")
    if isinstance(settings.get(key), str):
        return str(settings[key])
    problem = "is missing; add it" if key not in settings else f"is {settings[key]!r:.80}; give it a name"
    raise ConfigError(f"{at}.{key} {problem}. Known: {', '.join(registry.names())}")
