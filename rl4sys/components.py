"""Public names for components of your own: protocols, base classes, functions and registries (docs/own_algorithm.md).

A registry is a mapping from names in config files to components: ``"ppo" in ALGORITHM_REGISTRY``. Assignment registers:
``NETWORK_REGISTRY["mine"] = Mine`` is the same as ``@register_network("mine")``.

All names are imported on first use, so a plugin loads torch or Gymnasium only if its components need them. The file
``components.pyi`` declares the types.
"""

from __future__ import annotations

import importlib
from typing import Any

_REGISTRIES = {
    "ALGORITHM_REGISTRY": "ALGORITHMS",
    "BUFFER_REGISTRY": "BUFFERS",
    "DATASET_REGISTRY": "DATASETS",
    "ENVIRONMENT_REGISTRY": "ENVIRONMENTS",
    "LOGGER_REGISTRY": "LOGGERS",
    "NETWORK_REGISTRY": "NETWORKS",
    "WRAPPER_REGISTRY": "WRAPPERS",
}
"""Names of the registries here and in `rl4sys.registry`."""

_MODULES = {
    "algorithms.actions": ("ALL_ACTIONS", "ActionKind"),
    "algorithms.base": ("Algorithm", "AlgorithmConfig", "AlgorithmSetup", "Metrics", "Update"),
    "algorithms.base_algorithm": ("BaseAlgorithm", "BaseAlgorithmConfig"),
    "algorithms.distributions": (
        "Distribution",
        "DistributionParams",
        "categorical_terms",
        "distribution_of",
        "gaussian_terms",
    ),
    "algorithms.imitation": ("Imitation", "cloning_loss"),
    "algorithms.off_policy": ("OffPolicyConfig", "TargetUpdater", "make_replay", "td_target", "weighted_mean"),
    "algorithms.optimization": ("descend", "make_adam", "set_lr"),
    "algorithms.returns": ("discounted_returns", "generalized_advantages"),
    "algorithms.schedule": ("Schedule", "check_schedules", "constant"),
    "buffers.base": (
        "Batch",
        "Buffer",
        "BufferBytes",
        "BufferConfig",
        "BufferResources",
        "Demand",
        "GoalReward",
        "transitions",
    ),
    "buffers.rollout": ("Rollout", "RolloutConfig"),
    "buffers.uniform": ("Replay", "UniformConfig", "UpdateSchedule"),
    "config": ("Config",),
    "dataset": ("Dataset", "DatasetConfig"),
    "environments.base": ("Environment",),
    "environments.config": ("EnvironmentConfig",),
    "environments.old_style": ("BaseEnvironment",),
    "errors": ("ConfigError", "ExportError", "NumericalError", "RL4SysError", "SpecError"),
    "networks.base": (
        "Blueprint",
        "Exportable",
        "NetworkConfig",
        "Recurrent",
        "Tensors",
        "action_outputs",
        "build_network",
        "flatten",
        "observation_of",
        "to_array",
    ),
    "networks.body_writer": ("Body", "BodyWriter"),
    "networks.layers": ("LayersConfig",),
    "networks.state": (
        "module_state",
        "optimizer_state",
        "parts_state",
        "restore_module",
        "restore_optimizer",
        "restore_parts",
    ),
    "networks.torch_policy": ("TorchPolicy", "to_tensors"),
    "policy.base": ("Decision", "Policy"),
    "policy.draws": ("Draws",),
    "policy.program": ("ROW", "Operation"),
    "policy.snapshot": ("Snapshot", "input_size"),
    "registry": (
        "register_algorithm",
        "register_buffer",
        "register_dataset",
        "register_environment",
        "register_goal_reward",
        "register_logger",
        "register_network",
        "register_wrapper",
    ),
    "runs.config": ("LoggingConfig",),
    "runs.metrics": ("Logger",),
    "spec": ("Array", "Box", "Columns", "Discrete", "MultiDiscrete", "Space", "Spec", "State"),
    "trajectory": ("Trajectory",),
}
"""Names by the module of `rl4sys` that defines them."""

_HOMES = {name: (f"rl4sys.{module}", name) for module, names in _MODULES.items() for name in names}
_HOMES |= {name: ("rl4sys.registry", attribute) for name, attribute in _REGISTRIES.items()}
"""Module that defines a name, and its name there."""

__all__ = [*_HOMES]  # noqa: PLE0604 - names


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name not in _HOMES:
        raise AttributeError(
            f"module 'rl4sys.components' has no attribute {name!r}; docs/own_algorithm.md describes the components"
        )
    module, attribute = _HOMES[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
