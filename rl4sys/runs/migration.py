"""Migration of experiment configs from earlier versions and from the formats of other libraries.

Files without a version are treated as version 0: settings may use the names of other libraries, may be at the top level
instead of in a block, or may be a softlearning variant.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import partial
from typing import Any, TypeAlias

from rl4sys.config import OTHER_NAMES, Settings
from rl4sys.config.migration import Draft, Step, migrate
from rl4sys.registry import ALGORITHMS, BUFFERS, NETWORKS

Fields: TypeAlias = Mapping[str, Set[str]]
"""Names of the settings in each config block."""

UNMARKED = 0
"""Version that a migration assumes for a file without a version. The parser assumes the current version instead."""

_TOP = {
    "algo": "algorithm.name",
    "env": "environment.name",
    "env_id": "environment.name",
    "env_name": "environment.name",
    "name": "experiment.name",
    "exp_name": "experiment.name",
    "exp-name": "experiment.name",
    "experiment_name": "experiment.name",
    "buffer_size": "buffer.size",
    "replay_size": "buffer.size",
}
"""Top-level settings of other libraries whose key does not determine a block, mapped to RL4Sys settings."""

_VARIANT = {
    "algorithm_params.class_name": "algorithm.name",
    "algorithm_params.type": "algorithm.name",
    "environment_params.training.universe": "environment.universe",
    "environment_params.training.domain": "environment.domain",
    "environment_params.training.task": "environment.task",
    "environment_params.training.kwargs": "environment.options",
    "policy_params.config.hidden_layer_sizes": "network.actor.hidden_dims",
    "Q_params.config.hidden_layer_sizes": "network.critic.hidden_dims",
    "replay_pool_params.config.max_size": "buffer.size",
    "sampler_params.config.max_path_length": "environment.max_episode_steps",
    "sampler_params.config.batch_size": "algorithm.batch_size",
    "sampler_params.config.min_pool_size": "algorithm.learning_starts",
    "run_params.seed": "experiment.seed",
    "run_params.checkpoint_frequency": "training.checkpoint_frequency",
    "algorithm_params.config.eval_n_episodes": "training.num_eval_episodes",
    "algorithm_params.config.epoch_length": "training.eval_frequency",
    "algorithm_params.config.num_warmup_samples": "algorithm.learning_starts",
    "algorithm_params.config.kernel_n_particles": "algorithm.particles",
    "algorithm_params.config.value_n_particles": "algorithm.value_samples",
}
"""Settings of a softlearning variant, mapped to RL4Sys settings."""

_VARIANT_NETWORKS = {"policy_params": "network.actor", "Q_params": "network.critic"}

_VARIANT_DEFAULTS = {
    "target_entropy": ("auto", "this value is the default"),
    "kernel_update_ratio": (0.5, "half of the particles are always updated"),
    "kernel_fn": (None, "the kernel is always Gaussian with the median bandwidth"),
    "eval_deterministic": (True, "evaluations are always deterministic"),
    "eval_render_kwargs": (None, "logging.video_frequency records evaluations"),
    "eval_render_mode": (None, "logging.video_frequency records evaluations"),
    "action_prior": ("uniform", "the action prior is always uniform"),
    "reparameterize": (True, "gradients are always reparameterized"),
    "store_extra_policy_info": (False, "policy information is never stored"),
    "save_full_state": (False, "checkpoints always have the full state"),
}
"""Arguments of softlearning algorithms that RL4Sys has no setting for.

Each is mapped to the value that can be migrated (None: any value), and to the reason why it is removed.
"""

_NETWORK_FIELDS = {"hidden_dims", "activation", "initialization", "layer_norm"}
"""Network settings with the same name in softlearning and RL4Sys."""

_VARIANT_ACTIVATION = "relu"
"""Default activation of softlearning networks. The default of RL4Sys is tanh."""

_EPOCH_LENGTH = 1000
"""Default number of steps per epoch in softlearning."""

_VARIANT_BLOCKS = (
    "algorithm_params",
    "environment_params",
    "policy_params",
    "Q_params",
    "replay_pool_params",
    "sampler_params",
    "run_params",
)


def migrate_experiment(
    settings: Settings, fields: Fields, inherited: Settings | None = None, unmarked: int = UNMARKED
) -> Draft:
    """Convert settings to the current config version. The returned draft lists all changes.

    `inherited` has the settings of the files that `settings` extends.
    """
    steps: dict[int, Step] = {0: partial(_from_other_libraries, fields=fields, inherited=inherited or {})}
    return migrate(settings, steps, unmarked)


def _from_other_libraries(draft: Draft, fields: Fields, inherited: Settings) -> None:
    _read_variant(draft)
    for block in ("algorithm", "environment"):
        if isinstance(draft.get(block), str):
            draft.move(block, f"{block}.name")
    for old, new in _TOP.items():
        draft.move(old, new)
    draft.move("environment.wrapper", "environment.family")
    _lower(draft, "algorithm.name")
    algorithm = draft.get("algorithm.name") or Draft(inherited).get("algorithm.name")
    fields = {"algorithm": _fields_of_algorithm(algorithm), **fields}
    for key in list(draft.settings):
        _find_block(draft, key, fields)
    _rename_within(draft, {**fields, **_fields_of_networks(draft), "buffer": _fields_of_buffer(draft, algorithm)})


def _read_variant(draft: Draft) -> None:
    """Convert a softlearning variant, in which each block has its arguments under the key `config` or `kwargs`."""
    for arguments in ("config", "kwargs"):
        _read_arguments(draft, arguments)
    for block in _VARIANT_BLOCKS:
        draft.drop(block, f"no setting corresponds to {draft.get(block)!r:.200}")


def _read_arguments(draft: Draft, arguments: str) -> None:
    given = f"algorithm_params.{arguments}"
    epochs, length = draft.get(f"{given}.n_epochs"), draft.get(f"{given}.epoch_length", _EPOCH_LENGTH)
    if isinstance(epochs, int) and isinstance(length, int):
        draft.move(f"{given}.n_epochs", "training.total_timesteps", epochs * length)
    for name, (supported, reason) in _VARIANT_DEFAULTS.items():
        if supported is None or draft.get(f"{given}.{name}") == supported:
            draft.drop(f"{given}.{name}", reason)
    if draft.has(f"{given}.num_warmup_samples"):
        draft.drop(f"sampler_params.{arguments}.min_pool_size", "num_warmup_samples sets the start of learning")
    _read_environment(draft, f"sampler_params.{arguments}.max_path_length")
    for old, new in _VARIANT.items():
        draft.move(old.replace(".config.", f".{arguments}."), new)
    for name in list(draft.get(given) or {}):
        draft.move(f"{given}.{name}", f"algorithm.{name}")
    for block, role in _VARIANT_NETWORKS.items():
        _read_network(draft, f"{block}.{arguments}", role)


def _read_network(draft: Draft, given: str, role: str) -> None:
    for name in sorted({*(draft.get(given) or {})} & _NETWORK_FIELDS):
        draft.move(f"{given}.{name}", f"{role}.{name}")
    if draft.has(f"{role}.hidden_dims") and not draft.has(f"{role}.activation"):
        draft.put(f"{role}.activation", _VARIANT_ACTIVATION)


def _read_environment(draft: Draft, path_length: str) -> None:
    """Replace an environment version that Gymnasium does not provide, and remove a path length above the step limit."""
    where = "environment_params.training"
    universe, domain, task = (draft.get(f"{where}.{part}") for part in ("universe", "domain", "task"))
    if universe != "gym" or domain is None or task is None:
        return
    from rl4sys.environments.families.gym import available_version, registered_limit

    name = available_version(f"{domain}-{task}")
    draft.put(f"{where}.task", name.removeprefix(f"{domain}-"))
    limit, length = registered_limit(name), draft.get(path_length)
    if limit is not None and isinstance(length, int) and limit < length:
        draft.drop(path_length, f"episodes of {name} have at most {limit} steps")


def is_variant(settings: Settings) -> bool:
    """Return True if settings have no version and a block of softlearning variants, such as `algorithm_params`."""
    return "version" not in settings and any(block in settings for block in _VARIANT_BLOCKS)


def _lower(draft: Draft, key: str) -> None:
    if isinstance(draft.get(key), str):
        draft.put(key, draft.get(key).lower())


def _find_block(draft: Draft, key: str, fields: Fields) -> None:
    """Move a top-level setting into the block that has a setting of this name."""
    if isinstance(draft.get(key), Mapping) or key in fields:
        return
    for block, known in fields.items():
        for name in (key, OTHER_NAMES.get(key)):
            if name in known and not draft.has(f"{block}.{name}"):
                draft.move(key, f"{block}.{name}")
                return


def _rename_within(draft: Draft, fields: Fields) -> None:
    """Rename settings inside their blocks from names of other libraries to RL4Sys names."""
    for block, known in fields.items():
        for key in list(draft.get(block) or {}):
            name = OTHER_NAMES.get(key)
            if key not in known and name in known:
                draft.move(f"{block}.{key}", f"{block}.{name}")


def _fields_of_algorithm(name: Any) -> Set[str]:
    return set(ALGORITHMS.get(name).Config.model_fields) if name in ALGORITHMS else set()


def _fields_of_buffer(draft: Draft, algorithm: Any) -> Set[str]:
    usual = ALGORITHMS.get(algorithm).default_buffer["type"] if algorithm in ALGORITHMS else "trajectory"
    kind = draft.get("buffer.type", usual)
    return set(BUFFERS.get(kind).Config.model_fields) if kind in BUFFERS else set()


def _fields_of_networks(draft: Draft) -> Fields:
    kinds = {role: draft.get(f"network.{role}.type", "mlp") for role in draft.get("network") or {}}
    models = {role: NETWORKS.get(kind).Config for role, kind in kinds.items() if kind in NETWORKS}
    return {f"network.{role}": set(model.model_fields) for role, model in models.items()}
