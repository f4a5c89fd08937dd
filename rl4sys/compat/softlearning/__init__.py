"""Compatibility with softlearning: its command, its factory functions ``get`` and the names used in its examples.

from rl4sys.compat.softlearning import algorithms, get_environment_from_params

environment = get_environment_from_params({"universe": "gym", "domain": "Pendulum", "task": "v1"})
learner = algorithms.get({"class_name": "SAC", "config": {"Q_lr": 3e-4}}, environment)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "get_environment_from_params": "environments",
    "set_seed": "seeding",
    "GaussianPolicy": "policies",
    "FeedforwardGaussianPolicy": "policies",
    "UniformPolicy": "policies",
}
"""Names of this package and their modules. Modules are imported on first use, because some import torch."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
