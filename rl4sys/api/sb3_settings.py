"""Conversion of keyword arguments, including those of Stable-Baselines3, to settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rl4sys.config import OTHER_NAMES, did_you_mean
from rl4sys.errors import ConfigError
from rl4sys.registry import ALGORITHMS
from rl4sys.runs.config import ExperimentConfig, RunConfig
from rl4sys.runs.shipped import algorithm_defaults

_IGNORED = ("verbose", "tensorboard_log", "stats_window_size", "_init_setup_model")
"""Arguments of Stable-Baselines3 that have no effect."""
_NETWORK_ROLES = {"pi": "actor", "vf": "critic", "qf": "critic"}
_UNSUPPORTED = ("use_sde", "sde_sample_freq", "replay_buffer_class", "optimize_memory_usage", "action_noise")


def translate(algorithm: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert keyword arguments to settings by dotted name. Raises `ConfigError` for unknown arguments."""
    fields = set(ALGORITHMS.get(algorithm).Config.model_fields)
    changes: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in _IGNORED:
            continue
        if value is None or (name in _UNSUPPORTED and not value):
            continue
        special = _SPECIAL.get(name)
        if special is not None:
            changes |= special(algorithm, value, arguments)
        else:
            changes[_key(algorithm, name, fields)] = _plain(name, value)
    return changes


def _key(algorithm: str, name: str, fields: set[str]) -> str:
    """Return the dotted name of the setting that an argument changes."""
    if "." in name or name in ExperimentConfig.model_fields:
        return name
    for candidate in (name, OTHER_NAMES.get(name, "")):
        if candidate in fields:
            return f"algorithm.{candidate}"
    if name in RunConfig.model_fields:
        return f"experiment.{name}"
    known = [*fields, *_SPECIAL, *(other for other, ours in OTHER_NAMES.items() if ours in fields)]
    raise ConfigError(
        f"{algorithm} has no argument {name!r}{did_you_mean(name, known)} Settings of other blocks are given by their "
        'dotted name, such as **{"environment.normalize_obs": True}'
    )


def _plain(name: str, value: Any) -> Any:
    if callable(value):
        raise ConfigError(
            f"{name} is a function; expected a number, or a schedule such as {name}={{'start': 1e-3, 'end': 0.0}}"
        )
    return value


def _rollout(algorithm: str, steps: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert ``n_steps``, the steps of each environment, to ``buffer.size``, the steps of all environments."""
    default = algorithm_defaults(algorithm).get("environment", {}).get("num_envs", 1)
    copies = arguments.get("n_envs") or arguments.get("environment.num_envs") or default
    return {"buffer.size": int(steps) * int(copies)}


def _network(algorithm: str, kwargs: Any, _arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert ``policy_kwargs`` with ``net_arch`` and ``activation_fn`` to network settings."""
    if not isinstance(kwargs, Mapping) or set(kwargs) - {"net_arch", "activation_fn"}:
        raise ConfigError(
            f"policy_kwargs is {kwargs!r:.120}; expected a dict with net_arch and activation_fn. Other network "
            'settings are given by their dotted name, such as **{"network.actor.type": "gru"}'
        )
    roles = ALGORITHMS.get(algorithm).roles
    layers, activation = kwargs.get("net_arch"), kwargs.get("activation_fn")
    sizes: Mapping[str, Any] = layers if isinstance(layers, Mapping) else dict.fromkeys(roles, layers)
    changes: dict[str, Any] = {
        f"network.{_NETWORK_ROLES.get(role, role)}.hidden_dims": list(dims)
        for role, dims in sizes.items()
        if dims is not None
    }
    if activation is not None:
        name = str(getattr(activation, "__name__", activation)).lower()
        changes |= {f"network.{role}.activation": name for role in roles}
    return changes


def _exploration(_algorithm: str, _value: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the three ``exploration_*`` arguments to the epsilon schedule."""
    return {
        f"algorithm.exploration.{ours}": arguments.get(f"exploration_{theirs}", default)
        for ours, theirs, default in (
            ("start", "initial_eps", 1.0),
            ("end", "final_eps", 0.05),
            ("fraction", "fraction", 0.1),
        )
    }


def _entropy(algorithm: str, value: Any, _arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert ``ent_coef`` to the temperature of SAC ("auto" tunes it), or to ``entropy_coef`` of other algorithms."""
    if algorithm != "sac":
        return {"algorithm.entropy_coef": value}
    text = str(value)
    if text.startswith("auto"):
        start = text.partition("_")[2]
        return {"algorithm.initial_temperature": float(start)} if start else {}
    return {"algorithm.temperature": value}


_SPECIAL: Mapping[str, Callable[[str, Any, Mapping[str, Any]], dict[str, Any]]] = {
    "n_steps": _rollout,
    "n_envs": lambda _algorithm, copies, _arguments: {"environment.num_envs": copies},
    "buffer_size": lambda _algorithm, size, _arguments: {"buffer.size": size},
    "policy_kwargs": _network,
    "ent_coef": _entropy,
    "exploration_fraction": _exploration,
    "exploration_initial_eps": _exploration,
    "exploration_final_eps": _exploration,
}
"""Functions that convert arguments whose settings are outside the algorithm block or depend on the algorithm."""
