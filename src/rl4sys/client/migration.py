"""Client files of earlier forms, turned into the present one.

Two came before. The first has ``algorithm_name`` and sizes among ``algorithm_parameters``; the second has
``algorithm`` as a word, and ``network_architecture``, ``training`` and ``communication`` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from contextlib import suppress
from typing import Any, TypeAlias

from rl4sys.config import VERSION, Settings, did_you_mean
from rl4sys.errors import ConfigError

Names: TypeAlias = dict[str, str]
"""Old name → dotted new name."""

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
_PARAMETERS: Mapping[str, Names] = {
    "ppo": _COMMON
    | {
        "batch_size": "algorithm.minibatch_size",
        "lam": "algorithm.gae_lambda",
        "pi_lr": "algorithm.lr",
        "vf_lr": "algorithm.critic_lr",
    },
    "dqn": _COMMON
    | {
        "q_lr": "algorithm.lr",
        "train_q_iters": "algorithm.gradient_steps",
        "train_update_freq": "algorithm.train_frequency",
        "target_update_freq": "algorithm.target_update_interval",
        "epsilon": "algorithm.exploration.start",
        "epsilon_start": "algorithm.exploration.start",
        "epsilon_min": "algorithm.exploration.end",
        "epsilon_end": "algorithm.exploration.end",
        "epsilon_fraction": "algorithm.exploration.fraction",
        "buffer_size": "buffer.size",
        "buf_size": "buffer.size",
    },
}
"""By algorithm. A parameter that is not here keeps its name, and the server says if it knows none of that name."""

_KINDS = {"ppo": "onpolicy", "dqn": "offpolicy"}
_NETWORK: Names = {"hidden_sizes": "network.all.hidden_dims", "activation": "network.all.activation"}
_TRAINING: Mapping[str, Names] = {
    "ppo": {"batch_size": "algorithm.minibatch_size", "epochs": "algorithm.epochs"},
    "dqn": {"batch_size": "algorithm.batch_size", "epochs": "algorithm.gradient_steps"},
}
_COMMUNICATION: Names = {"server_address": "server.address", "timeout": "server.timeout_seconds"}


def migrate(settings: Mapping[str, Any], native: Set[str]) -> Settings:
    """The settings in the present form; unchanged if they are. ``native`` are the present form's own keys."""
    if "algorithm_name" in settings:
        return _migrate_first(settings, native)
    if isinstance(settings.get("algorithm"), str):
        return _migrate_second(settings, native)
    return dict(settings)


def _migrate_first(old: Mapping[str, Any], native: Set[str]) -> Settings:
    _refuse_unknown(old, native - {"algorithm"} | _FIRST_HANDLED | set(_FIRST_TOP))
    name = str(old["algorithm_name"]).lower()
    _check_kind(old.get("type"), name)
    parameters = dict(_block(old, "algorithm_parameters"))
    new: Settings = {"version": VERSION, "algorithm": {"name": name}}
    for key, value in old.items():
        if key not in _FIRST_HANDLED:
            _put(new, _FIRST_TOP.get(key, key), value)
    _migrate_action(new, parameters, old.get("act_limit"))
    _migrate_rounds(new, parameters, name)
    _put_all(new, parameters, _PARAMETERS.get(name, _COMMON), "algorithm")
    return new


def _migrate_action(new: Settings, parameters: dict[str, Any], limit: Any) -> None:
    """``act_dim`` counts choices; with ``discrete: false``, numbers between -act_limit and act_limit."""
    size, discrete = parameters.pop("act_dim", None), parameters.pop("discrete", True)
    if size is None:
        return
    bound = {"low": -float(limit), "high": float(limit)} if isinstance(limit, int | float) else {}
    new["action"] = size if discrete else {"size": size, **bound}


def _migrate_rounds(new: Settings, parameters: dict[str, Any], name: str) -> None:
    """How much experience makes an update, and how many gradient steps it takes."""
    episodes = parameters.pop("traj_per_epoch", None)
    if name != "ppo":
        # Replay learns as steps come in, whatever trajectories they came in.
        return
    if isinstance(episodes, int):
        _put(new, "buffer.episodes", episodes)
        with suppress(TypeError, ValueError):
            # A length that is none is named by whoever reads that setting.
            _put(new, "buffer.size", episodes * int(new.get("max_traj_length", 1000)))
    passes: dict[str, Any] = {
        key: parameters.pop(key) for key in ("train_pi_iters", "train_v_iters") if key in parameters
    }
    if passes:
        _put(new, "algorithm.gradient_steps", _most(passes))


def _most(counts: Mapping[str, Any]) -> Any:
    """The largest of them; a mistake that is alone is named by whoever reads the setting it becomes."""
    if len(counts) == 1:
        return next(iter(counts.values()))
    for key, count in counts.items():
        if not isinstance(count, int):
            raise ConfigError(f"algorithm_parameters.{key} is {count!r:.80}; it should be a whole number")
    return max(counts.values())


def _migrate_second(old: Mapping[str, Any], native: Set[str]) -> Settings:
    _refuse_unknown(old, native - {"network"} | _SECOND_HANDLED)
    name = str(old["algorithm"]).lower()
    new: Settings = {"version": VERSION, "algorithm": {"name": name}}
    for key, value in old.items():
        if key not in _SECOND_HANDLED:
            _put(new, key, value)
    blocks: list[tuple[str, Names, str]] = [
        ("algorithm_parameters", _PARAMETERS.get(name, _COMMON), "algorithm"),
        ("network_architecture", _NETWORK, "network.all"),
        ("training", _TRAINING.get(name, {}), "training"),
        ("communication", _COMMUNICATION, "server"),
    ]
    for block, names, place in blocks:
        _put_all(new, _block(old, block), names, place)
    return new


def _put_all(new: Settings, old: Mapping[str, Any], names: Names, place: str) -> None:
    """What ``names`` does not know goes to ``place`` under its own name."""
    for key, value in old.items():
        _put(new, names.get(key, f"{place}.{key}"), value)


def _put(settings: Settings, dotted: str, value: Any) -> None:
    *blocks, name = dotted.split(".")
    for block in blocks:
        settings = settings.setdefault(block, {})
        if not isinstance(settings, dict):
            raise ConfigError(f"{block} is {settings!r:.80}; it should be a block of settings")
    settings[name] = value


def _block(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    block = settings.get(name) or {}
    if not isinstance(block, Mapping):
        raise ConfigError(f"{name} is {block!r:.80}; it should be a block of settings")
    return block


def _refuse_unknown(settings: Mapping[str, Any], known: Set[str]) -> None:
    for key in settings:
        if key not in known:
            raise ConfigError(f"{key} is not a setting of a client{did_you_mean(key, sorted(known))}")


def _check_kind(kind: Any, name: str) -> None:
    expected = _KINDS.get(name)
    if kind is not None and expected is not None and str(kind).lower().replace("-", "").replace("_", "") != expected:
        raise ConfigError(
            f"type is {kind!r}, but algorithm_name {name} is {expected}; remove type, or choose another algorithm"
        )
