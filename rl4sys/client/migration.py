"""Conversion of client settings from older formats to the current one.

There are two older formats. The first has ``algorithm_name``, and the observation and action sizes in
``algorithm_parameters``. The second has a string as ``algorithm``, with ``network_architecture``, ``training`` and
``communication``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from typing import Any, TypeAlias

from rl4sys.config import VERSION, Settings, did_you_mean
from rl4sys.errors import ConfigError

Names: TypeAlias = dict[str, str]
"""Mapping from the old name of a setting to its new dotted name."""

_FIRST_TOP: Names = {
    "train_server_address": "server.address",
    "max_traj_length": "max_traj_length",
    "send_frequency": "send_frequency",
}
_FIRST_HANDLED = {"algorithm_name", "algorithm_parameters", "act_limit", "type"}
_SECOND_HANDLED = {"algorithm", "algorithm_parameters", "network_architecture", "training", "communication"}

_COMMON: Names = {
    "seed": "seed",
    "input_size": "observation",
    "gamma": "algorithm.gamma",
    "lr": "algorithm.lr",
    "learning_rate": "algorithm.lr",
}
_REPLAY: Names = _COMMON | {
    "q_lr": "algorithm.lr",
    "train_update_freq": "algorithm.train_frequency",
    "buffer_size": "buffer.size",
    "buf_size": "buffer.size",
}
_ACTOR_CRITIC: Names = _REPLAY | {"pi_lr": "algorithm.actor_lr", "train_iters": "algorithm.gradient_steps"}
_PARAMETERS: Mapping[str, Names] = {
    "ppo": _COMMON
    | {
        "batch_size": "algorithm.minibatch_size",
        "lam": "algorithm.gae_lambda",
        "pi_lr": "algorithm.lr",
        "vf_lr": "algorithm.critic_lr",
    },
    "dqn": _REPLAY
    | {
        "train_q_iters": "algorithm.gradient_steps",
        "target_update_freq": "algorithm.target_update_interval",
        "epsilon": "algorithm.exploration.start",
        "epsilon_start": "algorithm.exploration.start",
        "epsilon_min": "algorithm.exploration.end",
        "epsilon_end": "algorithm.exploration.end",
        "epsilon_fraction": "algorithm.exploration.fraction",
    },
    "sac": _ACTOR_CRITIC,
    "td3": _ACTOR_CRITIC,
    "ddpg": _ACTOR_CRITIC,
}
"""New names of algorithm parameters, by algorithm. Other parameters keep their names; the server rejects unknown
names."""

_KINDS = {"ppo": "onpolicy", **dict.fromkeys(("dqn", "sac", "td3", "ddpg"), "offpolicy")}
_NETWORK: Names = {"hidden_sizes": "network.all.hidden_dims", "activation": "network.all.activation"}
_REPLAY_TRAINING: Names = {"batch_size": "algorithm.batch_size", "epochs": "algorithm.gradient_steps"}
_TRAINING: Mapping[str, Names] = {
    "ppo": {"batch_size": "algorithm.minibatch_size", "epochs": "algorithm.epochs"},
    **dict.fromkeys(("dqn", "sac", "td3", "ddpg"), _REPLAY_TRAINING),
}
_STEP_COUNTS = {"train_pi_iters": "algorithm.gradient_steps", "train_v_iters": "algorithm.critic_gradient_steps"}
_EPSILON_START, _EPSILON_END = 1.0, 0.05
"""Default start and end of algorithm.exploration, used to convert epsilon_decay to a number of steps."""
_MAX_STEPS = 10**15
_COMMUNICATION: Names = {"server_address": "server.address", "timeout": "server.timeout_seconds"}


def migrate(settings: Mapping[str, Any], native: Set[str]) -> Settings:
    """Convert settings of an older format; current settings are returned unchanged.

    ``native`` contains the names of all settings in the current format.
    """
    if "algorithm_name" in settings:
        return _migrate_first(settings, native)
    if isinstance(settings.get("algorithm"), str):
        return _migrate_second(settings, native)
    return dict(settings)


def _migrate_first(old: Mapping[str, Any], native: Set[str]) -> Settings:
    _reject_unknown(old, native - {"algorithm"} | _FIRST_HANDLED | set(_FIRST_TOP))
    name = str(old["algorithm_name"]).lower()
    _check_kind(old.get("type"), name)
    parameters = dict(_block(old, "algorithm_parameters"))
    new: Settings = {"version": VERSION, "algorithm": {"name": name}}
    for key, value in old.items():
        if key not in _FIRST_HANDLED:
            _put(new, _FIRST_TOP.get(key, key), value)
    _migrate_action(new, parameters, old.get("act_limit"))
    _migrate_update_schedule(new, parameters, name)
    _put_parameters(new, parameters, name)
    return new


def _migrate_action(new: Settings, parameters: dict[str, Any], limit: Any) -> None:
    """Convert ``act_dim``: the number of discrete actions, or with ``discrete: false`` the size of a Box."""
    size, discrete = parameters.pop("act_dim", None), parameters.pop("discrete", True)
    if size is None:
        return
    bound = {"low": -float(limit), "high": float(limit)} if isinstance(limit, int | float) else {}
    new["action"] = size if discrete else {"size": size, **bound}


def _migrate_update_schedule(new: Settings, parameters: dict[str, Any], name: str) -> None:
    """Convert the number of episodes per update and the number of gradient steps."""
    episodes = parameters.pop("traj_per_epoch", None)
    if name != "ppo":
        # Replay algorithms update per step, independent of trajectories.
        return
    if isinstance(episodes, int):
        _put(new, "buffer.episodes", episodes)
        with suppress(TypeError, ValueError):
            # The parser reports an invalid max_traj_length later.
            _put(new, "buffer.size", episodes * int(new.get("max_traj_length", 1000)))
    _migrate_step_counts(new, parameters)


def _migrate_step_counts(new: Settings, parameters: dict[str, Any]) -> None:
    """Convert the numbers of gradient steps of actor and critic. If only one is given, the parser checks it later."""
    counts: dict[str, Any] = {key: parameters.pop(key) for key in _STEP_COUNTS if key in parameters}
    if len(counts) == len(_STEP_COUNTS):
        for key, count in counts.items():
            if not isinstance(count, int):
                raise _invalid_parameter(key, count, "an integer")
        if len(set(counts.values())) == 1:
            # By default the critic takes as many gradient steps as the actor.
            del counts["train_v_iters"]
    for key, count in counts.items():
        _put(new, _STEP_COUNTS[key], count)


def _put_parameters(new: Settings, parameters: dict[str, Any], name: str) -> None:
    """Convert the parameters of the algorithm to current settings and add them to ``new``."""
    if "polyak" in parameters and _PARAMETERS.get(name) is _ACTOR_CRITIC:
        # polyak is the share of the old weights that a target network keeps; tau is the share of the new weights.
        _put(new, "algorithm.tau", 1.0 - _number(parameters, ("polyak",), 0.0))
        del parameters["polyak"]
    if name == "dqn" and "epsilon_decay" in parameters:
        _migrate_epsilon_decay(new, parameters)
    if name == "sac":
        tuned = parameters.pop("adaptive_alpha", False)
        if "alpha" in parameters:
            _put(new, f"algorithm.{'initial_temperature' if tuned else 'temperature'}", parameters.pop("alpha"))
    _put_all(new, parameters, _PARAMETERS.get(name, _COMMON), "algorithm")


def _migrate_epsilon_decay(new: Settings, parameters: dict[str, Any]) -> None:
    """Convert ``epsilon_decay``, the decrease of epsilon per decision, to the number of steps until its minimum."""
    start = _number(parameters, ("epsilon", "epsilon_start"), _EPSILON_START)
    end = _number(parameters, ("epsilon_min", "epsilon_end"), _EPSILON_END)
    decay = _number(parameters, ("epsilon_decay",), 0.0)
    if not decay > 0:
        raise _invalid_parameter("epsilon_decay", parameters["epsilon_decay"], "a number above 0")
    del parameters["epsilon_decay"]
    steps = round(min(max((start - end) / decay, 1.0), _MAX_STEPS))
    _put(new, "algorithm.exploration", {"start": start, "end": end, "steps": steps})


def _number(parameters: Mapping[str, Any], names: Sequence[str], default: float) -> float:
    """Return the value of the first name in ``names`` that is given, or ``default``."""
    name = next((name for name in names if name in parameters), None)
    if name is None:
        return default
    value = parameters[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _invalid_parameter(name, value, "a number")
    return float(value)


def _invalid_parameter(name: str, value: Any, expected: str) -> ConfigError:
    return ConfigError(f"algorithm_parameters.{name} is {value!r:.80}; expected {expected}")


def _migrate_second(old: Mapping[str, Any], native: Set[str]) -> Settings:
    _reject_unknown(old, native - {"network"} | _SECOND_HANDLED)
    name = str(old["algorithm"]).lower()
    new: Settings = {"version": VERSION, "algorithm": {"name": name}}
    for key, value in old.items():
        if key not in _SECOND_HANDLED:
            _put(new, key, value)
    _put_parameters(new, dict(_block(old, "algorithm_parameters")), name)
    blocks: list[tuple[str, Names, str]] = [
        ("network_architecture", _NETWORK, "network.all"),
        ("training", _TRAINING.get(name, {}), "training"),
        ("communication", _COMMUNICATION, "server"),
    ]
    for block, names, place in blocks:
        _put_all(new, _block(old, block), names, place)
    return new


def _put_all(new: Settings, old: Mapping[str, Any], names: Names, place: str) -> None:
    """Add old settings under their new names. A setting without a new name keeps its name, in the block ``place``."""
    for key, value in old.items():
        _put(new, names.get(key, f"{place}.{key}"), value)


def _put(settings: Settings, dotted: str, value: Any) -> None:
    *blocks, name = dotted.split(".")
    for block in blocks:
        settings = settings.setdefault(block, {})
        if not isinstance(settings, dict):
            raise ConfigError(f"{block} is {settings!r:.80}; expected a block of settings")
    settings[name] = value


def _block(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    block = settings.get(name) or {}
    if not isinstance(block, Mapping):
        raise ConfigError(f"{name} is {block!r:.80}; expected a block of settings")
    return block


def _reject_unknown(settings: Mapping[str, Any], known: Set[str]) -> None:
    for key in settings:
        if key not in known:
            raise ConfigError(f"{key} is not a setting of a client{did_you_mean(key, sorted(known))}")


def _check_kind(kind: Any, name: str) -> None:
    expected = _KINDS.get(name)
    if kind is not None and expected is not None and str(kind).lower().replace("-", "").replace("_", "") != expected:
        raise ConfigError(
            f"type is {kind!r}, but algorithm_name {name} is {expected}; remove type, or choose another algorithm"
        )
