"""Tests of the migration of settings between config versions."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest

from rl4sys.config import VERSION, Settings
from rl4sys.config.migration import Draft, migrate
from rl4sys.errors import ConfigError
from rl4sys.runs.config import BLOCK_FIELDS, parse_experiment
from rl4sys.runs.migration import migrate_experiment


def one_to_two(draft: Draft) -> None:
    draft.move("training.steps", "training.total_steps")


def two_to_three(draft: Draft) -> None:
    draft.move("training.total_steps", "length.steps")
    draft.drop("color", "colors are no longer supported")


STEPS = {1: one_to_two, 2: two_to_three}


def test_every_migration_step_is_applied_in_order() -> None:
    old = {"version": 1, "training": {"steps": 5}, "color": "red"}
    draft = migrate(old, STEPS, unmarked=1, current=3)
    assert draft.settings == {"version": 3, "length": {"steps": 5}}
    assert [str(change) for change in draft.changes] == [
        "training.steps → training.total_steps",
        "training.total_steps → length.steps",
        "color removed: colors are no longer supported",
        "version: 3",
    ]
    assert old == {"version": 1, "training": {"steps": 5}, "color": "red"}, "the original should not change"


def test_migration_starts_at_the_given_version() -> None:
    new = migrate({"version": 2, "training": {"total_steps": 5}}, STEPS, unmarked=1, current=3)
    assert new.settings == {"version": 3, "length": {"steps": 5}}
    unmarked = migrate({"training": {"total_steps": 5}}, STEPS, unmarked=2, current=3)
    assert unmarked.settings == new.settings
    assert migrate({"version": 3, "a": 1}, STEPS, unmarked=1, current=3).changes == []


def test_config_of_a_later_version_is_rejected() -> None:
    with pytest.raises(ConfigError) as caught:
        migrate({"version": 4}, STEPS, unmarked=1, current=3)
    assert str(caught.value) == (
        f"the config has version 4, but rl4sys {version('rl4sys')} supports only versions up to 3; "
        "upgrade rl4sys with: pip install --upgrade rl4sys"
    )


@pytest.mark.parametrize("given", ["1", -1, True, None, 1.0])
def test_version_that_is_not_a_whole_number_is_rejected(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"version is .*; expected an integer such as 3"):
        migrate({"version": given}, STEPS, unmarked=1, current=3)


def test_setting_with_both_old_and_new_name_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"a\.old and a\.new are names of the same setting and both are given; remove one"
    ):
        Draft({"a": {"old": 1, "new": 2}}).move("a.old", "a.new")


def migrated(settings: Settings) -> Settings:
    draft = migrate_experiment(settings, BLOCK_FIELDS)
    parse_experiment(draft.settings)
    assert draft.settings.pop("version") == VERSION
    return draft.settings


def test_setting_names_of_other_libraries_are_migrated() -> None:
    old = {
        "algo": "PPO",
        "env_id": "CartPole-v1",
        "n_envs": 4,
        "seed": 3,
        "n_timesteps": 1000,
        "learning_rate": 1e-3,
        "clip_range": 0.1,
        "algorithm": {"batch_size": 32, "ent_coef": 0.01},
        "network": {"actor": {"net_arch": [8]}, "critic": {"hidden_sizes": [8]}},
        "buffer": {"capacity": 128},
        "training": {"eval_freq": 500},
    }
    assert migrated(old) == {
        "algorithm": {"minibatch_size": 32, "entropy_coef": 0.01, "name": "ppo", "lr": 1e-3, "clip_ratio": 0.1},
        "environment": {"name": "CartPole-v1", "num_envs": 4},
        "experiment": {"seed": 3},
        "network": {"actor": {"hidden_dims": [8]}, "critic": {"hidden_dims": [8]}},
        "buffer": {"size": 128},
        "training": {"total_timesteps": 1000, "eval_frequency": 500},
    }


def test_migration_keeps_valid_setting_name() -> None:
    dqn = {"algorithm": {"name": "dqn", "batch_size": 32}, "environment": {"name": "CartPole-v1"}}
    assert migrated(dqn) == dqn


@pytest.mark.parametrize(("kind", "arguments"), [("class_name", "config"), ("type", "kwargs")])
def test_softlearning_variant_is_migrated_to_an_experiment(kind: str, arguments: str) -> None:
    variant = {
        "algorithm_params": {
            kind: "SAC",
            arguments: {
                "epoch_length": 1000,
                "n_epochs": 200,
                "Q_lr": 3e-4,
                "policy_lr": 1e-4,
                "discount": 0.98,
                "tau": 0.01,
                "eval_n_episodes": 3,
                "n_train_repeat": 2,
            },
        },
        "environment_params": {"training": {"universe": "gym", "domain": "HalfCheetah", "task": "v5"}},
        "policy_params": {kind: "FeedforwardGaussianPolicy", arguments: {"hidden_layer_sizes": [256, 256]}},
        "Q_params": {kind: "double_feedforward_Q_function", arguments: {"hidden_layer_sizes": [128, 128]}},
        "replay_pool_params": {kind: "SimpleReplayPool", arguments: {"max_size": 1000000}},
        "sampler_params": {kind: "SimpleSampler", arguments: {"max_path_length": 1000, "batch_size": 64}},
        "run_params": {"seed": 7585, "checkpoint_at_end": True, "checkpoint_frequency": 1000},
        "exp-name": "my-experiment",
    }
    assert migrated(variant) == {
        "algorithm": {
            "name": "sac",
            "batch_size": 64,
            "lr": 3e-4,
            "actor_lr": 1e-4,
            "gamma": 0.98,
            "tau": 0.01,
            "gradient_steps": 2,
        },
        "environment": {"universe": "gym", "domain": "HalfCheetah", "task": "v5", "max_episode_steps": 1000},
        "network": {
            "actor": {"hidden_dims": [256, 256], "activation": "relu"},
            "critic": {"hidden_dims": [128, 128], "activation": "relu"},
        },
        "buffer": {"size": 1000000},
        "experiment": {"seed": 7585, "name": "my-experiment"},
        "training": {
            "total_timesteps": 200_000,
            "checkpoint_frequency": 1000,
            "num_eval_episodes": 3,
            "eval_frequency": 1000,
        },
    }


def test_variant_gets_environment_version_and_step_limit_of_gymnasium() -> None:
    variant = {
        "algorithm_params": {
            "class_name": "SQL",
            "config": {"n_epochs": 3, "kernel_n_particles": 16, "kernel_update_ratio": 0.5, "num_warmup_samples": 500},
        },
        "environment_params": {"training": {"universe": "gym", "domain": "Reacher", "task": "v2"}},
        "policy_params": {"class_name": "GaussianPolicy", "config": {"hidden_layer_sizes": [8], "activation": "elu"}},
        "sampler_params": {"class_name": "SimpleSampler", "config": {"max_path_length": 1000, "min_pool_size": 1}},
    }
    assert migrated(variant) == {
        "algorithm": {"name": "sql", "particles": 16, "learning_starts": 500},
        "environment": {"universe": "gym", "domain": "Reacher", "task": "v5"},
        "network": {"actor": {"hidden_dims": [8], "activation": "elu"}},
        "training": {"total_timesteps": 3000},
    }
    changes = [str(change) for change in migrate_experiment(variant, BLOCK_FIELDS).changes]
    assert "sampler_params.config.max_path_length removed: episodes of Reacher-v5 have at most 50 steps" in changes


def test_unsupported_value_of_a_variant_is_an_error() -> None:
    variant = {
        "algorithm_params": {"class_name": "SQL", "config": {"kernel_update_ratio": 0.25}},
        "environment_params": {"training": {"universe": "gym", "domain": "Pendulum", "task": "v1"}},
    }
    with pytest.raises(ConfigError, match=r"algorithm\.kernel_update_ratio is not a setting"):
        migrated(variant)


def test_unsupported_settings_of_a_variant_are_listed() -> None:
    draft = migrate_experiment({"run_params": {"checkpoint_at_end": True}, "universe": "gym"}, BLOCK_FIELDS)
    assert [str(change) for change in draft.changes][:2] == [
        "run_params removed: no setting corresponds to {'checkpoint_at_end': True}",
        "universe → environment.universe",
    ]


def test_stored_settings_of_an_earlier_version_are_read() -> None:
    old = {"version": 0, "algorithm": {"name": "PPO", "learning_rate": 0.5}, "environment": {"env_id": "CartPole-v1"}}
    read = parse_experiment(old)
    assert read.version == VERSION
    assert read.to_settings()["algorithm"]["lr"] == 0.5


def test_settings_without_a_version_are_not_migrated() -> None:
    with pytest.raises(ConfigError, match=r"algorithm.learning_rate is not a setting; did you mean lr\?"):
        parse_experiment({"algorithm": {"name": "ppo", "learning_rate": 0.5}, "environment": {"name": "CartPole-v1"}})
