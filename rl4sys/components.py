"""Public names for components of your own: base classes, decorators and registries (docs/own_algorithm.md).

A registry is a mapping from names in config files to components: ``"ppo" in ALGORITHM_REGISTRY``. Assignment registers:
``NETWORK_REGISTRY["mine"] = Mine`` is the same as ``@register_network("mine")``.
"""

from __future__ import annotations

from rl4sys.algorithms.base_algorithm import BaseAlgorithm
from rl4sys.algorithms.returns import discounted_returns
from rl4sys.environments.old_style import BaseEnvironment
from rl4sys.registry import (
    ALGORITHMS,
    BUFFERS,
    ENVIRONMENTS,
    LOGGERS,
    NETWORKS,
    register_algorithm,
    register_buffer,
    register_dataset,
    register_environment,
    register_goal_reward,
    register_logger,
    register_network,
)

ALGORITHM_REGISTRY = ALGORITHMS
BUFFER_REGISTRY = BUFFERS
ENVIRONMENT_REGISTRY = ENVIRONMENTS
LOGGER_REGISTRY = LOGGERS
NETWORK_REGISTRY = NETWORKS

__all__ = [
    "ALGORITHM_REGISTRY",
    "BUFFER_REGISTRY",
    "ENVIRONMENT_REGISTRY",
    "LOGGER_REGISTRY",
    "NETWORK_REGISTRY",
    "BaseAlgorithm",
    "BaseEnvironment",
    "discounted_returns",
    "register_algorithm",
    "register_buffer",
    "register_dataset",
    "register_environment",
    "register_goal_reward",
    "register_logger",
    "register_network",
]
