"""Versions of the config format, and how settings come from one to the next."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest

from rl4sys.config import VERSION, Settings
from rl4sys.errors import ConfigError
from rl4sys.experiment.config import BLOCK_FIELDS, parse_experiment
from rl4sys.experiment.migration import migrate_experiment
from rl4sys.migration import Draft, migrate


def one_to_two(draft: Draft) -> None:
    draft.move("training.steps", "training.total_steps")


def two_to_three(draft: Draft) -> None:
    draft.move("training.total_steps", "length.steps")
    draft.drop("colour", "nothing is coloured any more")


STEPS = {1: one_to_two, 2: two_to_three}


def test_settings_pass_through_every_version_on_the_way() -> None:
    old = {"version": 1, "training": {"steps": 5}, "colour": "red"}
    draft = migrate(old, STEPS, unmarked=1, present=3)
    assert draft.settings == {"version": 3, "length": {"steps": 5}}
    assert [str(change) for change in draft.changes] == [
        "training.steps → training.total_steps",
        "training.total_steps → length.steps",
        "colour left out: nothing is coloured any more",
        "version: 3",
    ]
    assert old == {"version": 1, "training": {"steps": 5}, "colour": "red"}, "the original is left alone"


def test_settings_begin_at_their_own_version() -> None:
    new = migrate({"version": 2, "training": {"total_steps": 5}}, STEPS, unmarked=1, present=3)
    assert new.settings == {"version": 3, "length": {"steps": 5}}
    unmarked = migrate({"training": {"total_steps": 5}}, STEPS, unmarked=2, present=3)
    assert unmarked.settings == new.settings
    assert migrate({"version": 3, "a": 1}, STEPS, unmarked=1, present=3).changes == []


def test_a_later_version_names_the_release_that_this_is() -> None:
    with pytest.raises(ConfigError) as caught:
        migrate({"version": 4}, STEPS, unmarked=1, present=3)
    assert str(caught.value) == (
        "the config says version: 4, and this rl4sys reads version 3: it was written for a later release than this "
        f"one, which is {version('rl4sys')}; pip install --upgrade rl4sys"
    )


@pytest.mark.parametrize("given", ["1", -1, True, None, 1.0])
def test_a_version_is_a_whole_number(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"version is .*; it should be a whole number such as 3"):
        migrate({"version": given}, STEPS, unmarked=1, present=3)


def test_a_setting_given_under_both_names_is_not_chosen_for() -> None:
    with pytest.raises(ConfigError, match=r"a\.old and a\.new are the same setting, and both are given; remove one"):
        Draft({"a": {"old": 1, "new": 2}}).move("a.old", "a.new")


def migrated(settings: Settings) -> Settings:
    draft = migrate_experiment(settings, BLOCK_FIELDS)
    parse_experiment(draft.settings)
    assert draft.settings.pop("version") == VERSION
    return draft.settings


def test_the_words_of_other_libraries_become_ours() -> None:
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


def test_a_name_that_is_right_here_is_left_alone() -> None:
    dqn = {"algorithm": {"name": "dqn", "batch_size": 32}, "environment": {"name": "CartPole-v1"}}
    assert migrated(dqn) == dqn


@pytest.mark.parametrize(("kind", "arguments"), [("class_name", "config"), ("type", "kwargs")])
def test_softlearnings_variants_become_experiments(kind: str, arguments: str) -> None:
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
        "network": {"actor": {"hidden_dims": [256, 256]}, "critic": {"hidden_dims": [128, 128]}},
        "buffer": {"size": 1000000},
        "experiment": {"seed": 7585, "name": "my-experiment"},
        "training": {
            "total_timesteps": 200_000,
            "checkpoint_frequency": 1000,
            "num_eval_episodes": 3,
            "eval_frequency": 1000,
        },
    }


def test_what_a_variant_has_and_we_have_not_is_listed() -> None:
    draft = migrate_experiment({"run_params": {"checkpoint_at_end": True}, "universe": "gym"}, BLOCK_FIELDS)
    assert [str(change) for change in draft.changes][:2] == [
        "run_params left out: nothing here corresponds to {'checkpoint_at_end': True}",
        "universe → environment.universe",
    ]


def test_stored_settings_of_an_earlier_version_are_still_read() -> None:
    old = {"version": 0, "algorithm": {"name": "PPO", "learning_rate": 0.5}, "environment": {"env_id": "CartPole-v1"}}
    read = parse_experiment(old)
    assert read.version == VERSION
    assert read.to_settings()["algorithm"]["lr"] == 0.5


def test_settings_that_say_no_version_are_read_as_they_stand() -> None:
    with pytest.raises(ConfigError, match=r"algorithm.learning_rate is not a setting; did you mean lr\?"):
        parse_experiment({"algorithm": {"name": "ppo", "learning_rate": 0.5}, "environment": {"name": "CartPole-v1"}})
