"""Settings of the example by algorithm, universe and domain, in the tables of softlearning.

The tables are read from the configs shipped with rl4sys (`rl4sys config list`). Change them here, or pass another
variant to `ExperimentRunner`.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from rl4sys.config import Settings, did_you_mean, load, merged, shipped_names
from rl4sys.environments.families.gym import available_version
from rl4sys.errors import ConfigError

DEFAULT_KEY = "__DEFAULT_KEY__"
EPOCH_LENGTH = 1000

_UNIVERSES = ("gym", "dm_control")
_SHIPPED = {name: load(f"algorithms/{name}") for name in ("sac", "sql")}


def _additional(name: str, *names: str) -> Settings:
    """Return the class name of an algorithm and its shipped values of the settings ``names``."""
    return {"class_name": name.upper(), "config": {key: _SHIPPED[name]["algorithm"][key] for key in names}}


def _network(role: str) -> Settings:
    shipped = _SHIPPED["sac"]["network"][role]
    return {"hidden_layer_sizes": shipped["hidden_dims"], **{k: v for k, v in shipped.items() if k != "hidden_dims"}}


ALGORITHM_PARAMS_BASE: Settings = {
    "config": {
        "discount": _SHIPPED["sac"]["algorithm"]["gamma"],
        "batch_size": _SHIPPED["sac"]["algorithm"]["batch_size"],
        "num_warmup_samples": 1000,
        "eval_n_episodes": 5,
    }
}
"""Hyperparameters of both algorithms."""

ALGORITHM_PARAMS_ADDITIONAL: dict[str, Settings] = {
    "SAC": _additional("sac", "lr", "tau"),
    "SQL": _additional("sql", "lr", "particles", "target_update_interval"),
}
"""Hyperparameters of each algorithm."""

REWARD_SCALE_PER_DOMAIN: dict[str, dict[str, float]] = {
    "SQL": {
        name.removeprefix("sql_"): load(f"algorithms/{name}")["algorithm"]["reward_scale"]
        for name in shipped_names("algorithms")
        if name.startswith("sql_")
    }
}
"""Reward scale by algorithm and lower-case Gymnasium domain; the scale of other domains is 1."""

GAUSSIAN_POLICY_PARAMS_BASE: Settings = {
    "class_name": "FeedforwardGaussianPolicy",
    "config": {"squash": True, **_network("actor")},
}

Q_PARAMS_BASE: Settings = {"class_name": "double_feedforward_Q_function", "config": _network("critic")}


def _lengths(universe: str) -> dict[str, int]:
    """Return the number of training steps by domain, read from the shipped environment configs of a universe."""
    found = {DEFAULT_KEY: load(f"environments/{universe}")["training"]["total_timesteps"]}
    for name in shipped_names("environments"):
        settings = load(f"environments/{name}")
        environment, training = settings.get("environment", {}), settings.get("training", {})
        if environment.get("family") == universe and "total_timesteps" in training:
            found[environment["name"].partition("-")[0]] = training["total_timesteps"]
    return found


TOTAL_STEPS_PER_UNIVERSE_DOMAIN_TASK: dict[str, dict[str, int]] = {name: _lengths(name) for name in _UNIVERSES}
"""Number of training steps by universe and domain."""

MAX_PATH_LENGTH_PER_UNIVERSE_DOMAIN_TASK: dict[str, dict[str, int]] = {
    "gym": {DEFAULT_KEY: 1000, "Pendulum": 200},
    "dm_control": {DEFAULT_KEY: 1000},
}
"""Maximum episode length in steps. A lower step limit of the environment takes precedence."""


def lookup(table: dict[str, dict[str, int]], universe: str, domain: str) -> int:
    """Return the entry of a universe and domain, or the default of the universe."""
    if universe not in table:
        raise ConfigError(f"--universe is {universe!r}; this example supports {', '.join(table)}")
    return table[universe].get(domain, table[universe][DEFAULT_KEY])


def get_variant_spec(args: Namespace) -> Settings:
    """Return the variant for the options ``universe``, ``domain``, ``task`` and ``algorithm`` (default: SAC)."""
    algorithm = (args.algorithm or "SAC").upper()
    if args.domain is None:
        raise ConfigError("--domain is missing; give an environment, such as --domain HalfCheetah")
    if algorithm not in ALGORITHM_PARAMS_ADDITIONAL:
        raise ConfigError(
            f"--algorithm is {args.algorithm!r}{did_you_mean(algorithm, ALGORITHM_PARAMS_ADDITIONAL)} This example "
            f"supports {' and '.join(ALGORITHM_PARAMS_ADDITIONAL)}; for other algorithms use: rl4sys train --algorithm "
            f"{args.algorithm} --domain {args.domain}"
        )
    return {
        "algorithm_params": _algorithm_params(algorithm, args.universe, args.domain),
        "environment_params": {"training": _environment_params(args)},
        "policy_params": GAUSSIAN_POLICY_PARAMS_BASE,
        "Q_params": Q_PARAMS_BASE,
        "replay_pool_params": {
            "class_name": "SimpleReplayPool",
            "config": {"max_size": _SHIPPED[algorithm.lower()]["buffer"]["size"]},
        },
        "sampler_params": {
            "class_name": "SimpleSampler",
            "config": {"max_path_length": lookup(MAX_PATH_LENGTH_PER_UNIVERSE_DOMAIN_TASK, args.universe, args.domain)},
        },
        "exp_name": f"{algorithm.lower()}_{args.domain.lower()}",
    }


def _algorithm_params(algorithm: str, universe: str, domain: str) -> Settings:
    steps = lookup(TOTAL_STEPS_PER_UNIVERSE_DOMAIN_TASK, universe, domain)
    config: dict[str, Any] = {"n_epochs": steps // EPOCH_LENGTH}
    scales = REWARD_SCALE_PER_DOMAIN.get(algorithm, {})
    if universe == "gym" and domain.lower() in scales:
        config["reward_scale"] = scales[domain.lower()]
    return merged(merged(ALGORITHM_PARAMS_BASE, ALGORITHM_PARAMS_ADDITIONAL[algorithm]), {"config": config})


def _environment_params(args: Namespace) -> Settings:
    domain, task = args.domain, args.task
    if task is None and args.universe == "gym":
        domain, _, task = available_version(domain).rpartition("-")
    if not task:
        raise ConfigError(f"--task is missing; --domain {args.domain} needs one, such as v1 (gym) or walk (dm_control)")
    return {"universe": args.universe, "domain": domain, "task": task}
