"""Experiment files of earlier versions, and in the words of other libraries, turned into the present form.

Version 0 stands for files that say no version: their settings may have the names that other libraries use, may stand
beside the blocks instead of in them, or may be softlearning's variants.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import partial
from typing import Any, TypeAlias

from rl4sys.config import ELSEWHERE, Settings
from rl4sys.migration import Draft, Step, migrate
from rl4sys.registry import ALGORITHMS, BUFFERS, NETWORKS

Fields: TypeAlias = Mapping[str, Set[str]]
"""The settings of each block that every experiment has."""

UNMARKED = 0
"""The version of files that say none, when they are migrated; where they are read, they are of the present one."""

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
"""Settings that others write beside the blocks, where the name alone does not say the block."""

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
}
"""Where softlearning's variants have what."""

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
    """The settings in the present form, with a list of what was changed; ``inherited`` is what they extend."""
    steps: dict[int, Step] = {0: partial(_from_elsewhere, fields=fields, inherited=inherited or {})}
    return migrate(settings, steps, unmarked)


def _from_elsewhere(draft: Draft, fields: Fields, inherited: Settings) -> None:
    _read_variant(draft)
    for block in ("algorithm", "environment"):
        if isinstance(draft.get(block), str):
            draft.move(block, f"{block}.name")
    for old, new in _TOP.items():
        draft.move(old, new)
    _lower(draft, "algorithm.name")
    algorithm = draft.get("algorithm.name") or Draft(inherited).get("algorithm.name")
    fields = {"algorithm": _fields_of_algorithm(algorithm), **fields}
    for key in list(draft.settings):
        _find_block(draft, key, fields)
    _rename_within(draft, {**fields, **_fields_of_networks(draft), "buffer": _fields_of_buffer(draft, algorithm)})


def _read_variant(draft: Draft) -> None:
    """Softlearning describes each component by a class and its arguments, in one of two spellings."""
    for arguments in ("config", "kwargs"):
        given = f"algorithm_params.{arguments}"
        epochs, length = (draft.get(f"{given}.{name}") for name in ("n_epochs", "epoch_length"))
        if isinstance(epochs, int) and isinstance(length, int):
            draft.move(f"{given}.n_epochs", "training.total_timesteps", epochs * length)
        for old, new in _VARIANT.items():
            draft.move(old.replace(".config.", f".{arguments}."), new)
        for name in list(draft.get(given) or {}):
            draft.move(f"{given}.{name}", f"algorithm.{name}")
    for block in _VARIANT_BLOCKS:
        draft.drop(block, f"nothing here corresponds to {draft.get(block)!r:.200}")


def _lower(draft: Draft, key: str) -> None:
    if isinstance(draft.get(key), str):
        draft.put(key, draft.get(key).lower())


def _find_block(draft: Draft, key: str, fields: Fields) -> None:
    """Put a setting that stands beside the blocks into the one that has it."""
    if isinstance(draft.get(key), Mapping) or key in fields:
        return
    for block, known in fields.items():
        for name in (key, ELSEWHERE.get(key)):
            if name in known and not draft.has(f"{block}.{name}"):
                draft.move(key, f"{block}.{name}")
                return


def _rename_within(draft: Draft, fields: Fields) -> None:
    """Give settings that are in their block, by another library's name, their name here."""
    for block, known in fields.items():
        for key in list(draft.get(block) or {}):
            name = ELSEWHERE.get(key)
            if key not in known and name in known:
                draft.move(f"{block}.{key}", f"{block}.{name}")


def _fields_of_algorithm(name: Any) -> Set[str]:
    return set(ALGORITHMS.get(name).Config.model_fields) if name in ALGORITHMS else set()


def _fields_of_buffer(draft: Draft, algorithm: Any) -> Set[str]:
    usual = ALGORITHMS.get(algorithm).usual_buffer["type"] if algorithm in ALGORITHMS else "trajectory"
    kind = draft.get("buffer.type", usual)
    return set(BUFFERS.get(kind).Config.model_fields) if kind in BUFFERS else set()


def _fields_of_networks(draft: Draft) -> Fields:
    kinds = {role: draft.get(f"network.{role}.type", "mlp") for role in draft.get("network") or {}}
    models = {role: NETWORKS.get(kind).Config for role, kind in kinds.items() if kind in NETWORKS}
    return {f"network.{role}": set(model.model_fields) for role, model in models.items()}
