"""Tests of the algorithm classes with the interface of Stable-Baselines3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rl4sys
from rl4sys.api import models
from rl4sys.errors import ConfigError
from rl4sys.registry import ALGORITHMS
from tests.api.test_same_run import results
from tests.recorded import balance, record, write_journal

CONTINUOUS = ("ddpg", "sac", "sql", "td3", "rpo")
OFFLINE = ("bc", "iql")
MODELS = {model.algorithm: model for model in vars(models).values() if hasattr(model, "algorithm")}
SMALL = {"learning_starts": 64, "batch_size": 32, "train_frequency": 32, "particles": 4, "value_samples": 4}


def make(name: str, environment: Any, *first: Any, **arguments: Any) -> Any:
    replay = {key: value for key, value in SMALL.items() if key in ALGORITHMS.get(name).Config.model_fields}
    return MODELS[name](*first, environment, **{**replay, **arguments})


def test_every_algorithm_has_a_class() -> None:
    assert sorted(MODELS) == sorted(set(ALGORITHMS.names()) - {*ALGORITHMS.own_names()})
    assert all(getattr(rl4sys, model.__name__) is model for model in MODELS.values())


@pytest.mark.parametrize("name", sorted({*MODELS} - {*OFFLINE}))
def test_algorithm_learns_predicts_saves_and_loads(tmp_path: Path, name: str) -> None:
    environment = "Pendulum-v1" if name in CONTINUOUS else "CartPole-v1"
    model = make(name, environment, "MlpPolicy").learn(300, progress_bar=False, root=tmp_path)
    row = np.zeros(3 if name in CONTINUOUS else 4)
    action, state = model.predict(row, deterministic=True)
    assert isinstance(action, np.ndarray)
    assert state is None
    assert model.predict(np.stack([row, row]))[0].shape[0] == 2
    assert model.run.config.algorithm.name == name
    loaded = type(model).load(model.save(tmp_path / "saved"))
    assert np.array_equal(loaded.predict(row, deterministic=True)[0], action)
    continued = type(model).load(model.run.path).learn(100, progress_bar=False)
    assert continued.run.steps >= 400


@pytest.mark.parametrize("name", OFFLINE)
def test_offline_algorithm_without_dataset_is_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="learns from recorded experience; give it as dataset="):
        MODELS[name]("CartPole-v1")
    write_journal(tmp_path / "data", record(balance, 3))
    dataset = {"type": "journal", "path": str(tmp_path / "data")}
    model = MODELS[name]("CartPole-v1", dataset=dataset).learn(200, progress_bar=False, root=tmp_path / "runs")
    assert model.predict([0.0] * 4)[0] in (0, 1)


def test_model_and_train_produce_identical_runs(tmp_path: Path) -> None:
    rl4sys.PPO("CartPole-v1", seed=3, learning_rate=1e-3).learn(512, progress_bar=False, root=tmp_path / "model")
    rl4sys.train(
        algorithm="ppo",
        environment="CartPole-v1",
        seed=3,
        total_timesteps=512,
        progress=False,
        root=tmp_path / "train",
        **{"algorithm.lr": 1e-3},
    )
    assert results(tmp_path / "model") == results(tmp_path / "train")


@pytest.mark.parametrize(
    ("algorithm", "arguments", "settings"),
    [
        ("ppo", {"n_steps": 64, "n_epochs": 3, "ent_coef": 0.02}, {"buffer.size": 64, "algorithm.epochs": 3}),
        ("ppo", {"policy_kwargs": {"net_arch": [16, 8]}}, {"network.actor.hidden_dims": [16, 8]}),
        ("ppo", {"policy_kwargs": {"net_arch": {"pi": [16], "vf": [8]}}}, {"network.critic.hidden_dims": [8]}),
        ("dqn", {"exploration_fraction": 0.3, "exploration_final_eps": 0.1}, {"algorithm.exploration.end": 0.1}),
        ("dqn", {"buffer_size": 5000, "target_update_interval": 50}, {"buffer.size": 5000}),
        ("sac", {"ent_coef": "auto_0.1"}, {"algorithm.initial_temperature": 0.1}),
        ("sac", {"ent_coef": 0.2, "verbose": 1}, {"algorithm.temperature": 0.2}),
        ("td3", {"tau": 0.01, "policy_delay": 3}, {"algorithm.tau": 0.01}),
        ("ppo", {"environment.num_envs": 2, "n_steps": 64}, {"buffer.size": 128, "environment.num_envs": 2}),
    ],
)
def test_stable_baselines_arguments_are_translated(
    tmp_path: Path, algorithm: str, arguments: dict[str, Any], settings: dict[str, Any]
) -> None:
    environment = "Pendulum-v1" if algorithm in CONTINUOUS else "CartPole-v1"
    run = MODELS[algorithm](environment, **arguments).learn(1, progress_bar=False, root=tmp_path).run
    for key, value in settings.items():
        found: Any = run.config.to_settings()
        for part in key.split("."):
            found = found[part]
        assert found == value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("MlpPolicy",), r"PPO needs an environment, such as PPO\(\"CartPole-v1\"\)"),
        (("MlpPolice", "CartPole-v1"), "policy is 'MlpPolice'; expected one of MlpPolicy"),
    ],
)
def test_wrong_positional_arguments_are_rejected(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rl4sys.PPO(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"learning_rat": 1e-3}, r"ppo has no argument 'learning_rat'; did you mean learning_rate\?"),
        ({"use_sde": True}, "ppo has no argument 'use_sde'"),
        ({"learning_rate": lambda fraction: 1e-3 * fraction}, "expected a number, or a schedule such as"),
        ({"policy_kwargs": {"ortho_init": False}}, "expected a dict with net_arch and activation_fn"),
    ],
)
def test_unknown_argument_is_rejected(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rl4sys.PPO("CartPole-v1", **arguments)


def test_untrained_model_cannot_predict() -> None:
    with pytest.raises(ConfigError, match=r"has no run yet; call learn\(\) first"):
        rl4sys.PPO("CartPole-v1").predict([0.0] * 4)
