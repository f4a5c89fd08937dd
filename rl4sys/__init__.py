"""RL4Sys: reinforcement learning for running systems and for research.

>>> import rl4sys
>>> run = rl4sys.train("ppo_cartpole", total_timesteps=512, progress=False)
>>> action = run.policy().act([0.1, 0.0, -0.02, 0.3])

Each name is imported on first use, so ``import rl4sys`` is fast and does not import torch or Gymnasium. docs/python.md
describes the Python API.
"""

from __future__ import annotations

import importlib
from typing import Any

from rl4sys.version import __version__

_MODULES = {
    "agent": ("Agent",),
    "callbacks": ("Callback", "StopAtReturn", "StopWithoutImprovement"),
    "models": (
        "A2C",
        "BC",
        "C51",
        "DDPG",
        "DQN",
        "IQL",
        "Model",
        "PPO",
        "QRDQN",
        "RPO",
        "Rainbow",
        "Reinforce",
        "SAC",
        "SQL",
        "TD3",
        "TRPO",
    ),
    "loading": ("load_policy",),
    "policy": ("Policy",),
    "run": ("RunHandle",),
    "runs": ("RunComparison", "RunList", "compare", "find_runs", "load_run"),
    "series": ("SeriesHandle", "sweep", "tune"),
    "serving": ("ServerHandle", "serve"),
    "train": ("train",),
    "views": ("MetricsTable", "Plot", "VideoFile"),
}
"""Public names of the Python API, by the module of `rl4sys.api` that defines them."""

_HOMES = {name: f"rl4sys.api.{module}" for module, names in _MODULES.items() for name in names}
_HOMES["RL4SysError"] = "rl4sys.errors"

__all__ = [
    "A2C",
    "BC",
    "C51",
    "DDPG",
    "DQN",
    "IQL",
    "PPO",
    "QRDQN",
    "RPO",
    "SAC",
    "SQL",
    "TD3",
    "TRPO",
    "Agent",
    "Callback",
    "MetricsTable",
    "Model",
    "Plot",
    "Policy",
    "RL4SysError",
    "Rainbow",
    "Reinforce",
    "RunComparison",
    "RunHandle",
    "RunList",
    "SeriesHandle",
    "ServerHandle",
    "StopAtReturn",
    "StopWithoutImprovement",
    "VideoFile",
    "__version__",
    "compare",
    "find_runs",
    "load_policy",
    "load_run",
    "serve",
    "sweep",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Import a name of the API on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rl4sys' has no attribute {name!r}; docs/python.md lists the public names")
    from rl4sys.extras import needed_by

    with needed_by(f"rl4sys.{name}"):
        value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
