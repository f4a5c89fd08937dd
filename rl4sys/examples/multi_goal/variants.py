"""Settings of the multi-goal example, from the shipped experiment `sql_multigoal`."""

from __future__ import annotations

from argparse import Namespace

from rl4sys.config import Settings, did_you_mean, load
from rl4sys.errors import ConfigError

_DOMAIN = "MultiGoal"
_SHIPPED = load("experiments/sql_multigoal")
_ONLY_SQL = ("name", "particles", "target_update_interval")
_ALGORITHMS = {
    "SQL": {name: value for name, value in _SHIPPED["algorithm"].items() if name != "name"},
    "SAC": {name: value for name, value in _SHIPPED["algorithm"].items() if name not in _ONLY_SQL},
}


def get_variant_spec(args: Namespace) -> Settings:
    """Return the variant for the option ``algorithm`` (default: SQL) on the multi-goal plane."""
    algorithm = (args.algorithm or "SQL").upper()
    if args.domain not in (None, _DOMAIN):
        raise ConfigError(f"--domain is {args.domain!r}; this example has only {_DOMAIN}, so omit the option")
    if algorithm not in _ALGORITHMS:
        raise ConfigError(f"--algorithm is {args.algorithm!r}{did_you_mean(algorithm, _ALGORITHMS)} Known: SQL, SAC.")
    environment, training = _SHIPPED["environment"], _SHIPPED["training"]
    epoch_length = training["eval_frequency"]
    return {
        "algorithm_params": {
            "class_name": algorithm,
            "config": {
                **_ALGORITHMS[algorithm],
                "epoch_length": epoch_length,
                "n_epochs": training["total_timesteps"] // epoch_length,
            },
        },
        "environment_params": {
            "training": {"universe": environment["family"], "domain": _DOMAIN, "task": "Default-v0"}
        },
        "policy_params": {"class_name": "FeedforwardGaussianPolicy", "config": dict(_SHIPPED["network"]["actor"])},
        "Q_params": {"class_name": "double_feedforward_Q_function", "config": dict(_SHIPPED["network"]["critic"])},
        "replay_pool_params": {"class_name": "SimpleReplayPool", "config": {"max_size": _SHIPPED["buffer"]["size"]}},
        "sampler_params": {
            "class_name": "SimpleSampler",
            "config": {"max_path_length": environment["max_episode_steps"]},
        },
        "run_params": {
            "seed": _SHIPPED["experiment"]["seed"],
            "checkpoint_frequency": training["checkpoint_frequency"],
        },
        "exp_name": f"{algorithm.lower()}_multigoal",
    }
