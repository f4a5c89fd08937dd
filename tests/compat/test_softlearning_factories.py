"""Factory functions ``get`` and names of the softlearning interface."""

from __future__ import annotations

import random
from collections.abc import Callable

import gymnasium
import numpy as np
import pytest
import torch

from rl4sys.buffers.prioritized import Prioritized
from rl4sys.compat import softlearning
from rl4sys.compat.softlearning import algorithms, policies, replay_pools, samplers, value_functions
from rl4sys.environments.base import Environment
from rl4sys.environments.config import EnvironmentConfig
from rl4sys.environments.factory import make_environment
from rl4sys.errors import ConfigError
from rl4sys.networks.base import observation_of
from rl4sys.policy.draws import Draws


@pytest.fixture(scope="module")
def environment() -> Environment:
    return softlearning.get_environment_from_params({"universe": "gym", "domain": "Pendulum", "task": "v0"})


def test_environment_is_created_from_params(environment: Environment) -> None:
    assert environment.spec is not None
    assert environment.spec.id == "Pendulum-v1", "the newest version is used"
    custom = {"universe": "gym", "domain": "Pendulum", "task": "v1", "kwargs": {"g": 5.0}}
    assert softlearning.get_environment_from_params(custom).unwrapped.g == 5.0
    walker = softlearning.get_environment_from_params({"universe": "dm_control", "domain": "walker", "task": "walk"})
    assert walker.action_space.shape == (6,)


@pytest.mark.parametrize("name", ["SAC", "SQL"])
def test_learner_learns_from_trajectories_of_the_sampler(environment: Environment, name: str) -> None:
    config = {"Q_lr": 1e-3, "num_warmup_samples": 10, "batch_size": 8}
    components = {"policy_params": {"class_name": "GaussianPolicy", "config": {"hidden_layer_sizes": [8]}}}
    learner = algorithms.get({"class_name": name, "config": config}, environment, components)
    assert (8,) in [parameter.shape for parameter in learner.algorithm.policy(10).network.parameters()]
    sampler = samplers.get({"class_name": "SimpleSampler", "config": {"max_path_length": 7}}, environment)
    trajectories = sampler.collect(learner.policy(), learner.version, 20)
    assert [len(trajectory) for trajectory in trajectories] == [7, 7, 6]
    assert [episode.length for episode in sampler.take_finished()] == [7, 7]
    assert len(learner.learn(trajectories)) == 11, "one update per step after the first ten"
    assert learner.version == 1


def test_learners_with_different_seeds_have_different_weights(environment: Environment) -> None:
    a, b = (algorithms.get({"class_name": "SAC"}, environment, seed=seed).snapshot().weights for seed in (1, 2))
    assert a.keys() == b.keys()
    assert any(not np.array_equal(a[name], b[name]) for name in a)


def test_gaussian_policy_has_the_given_layers_and_action_bounds(environment: Environment) -> None:
    params = {"class_name": "FeedforwardGaussianPolicy", "config": {"hidden_layer_sizes": [8, 4]}}
    policy = policies.get(params, environment)
    assert [layer.out_features for layer in policy.network.hidden.layers] == [8, 4]
    observation = {name: np.zeros((500, *box.shape), box.dtype) for name, box in policy.spec.observation.items()}
    action = policy.act(observation, {}, Draws(1)).action
    assert action.min() >= -2
    assert action.max() <= 2
    assert len(np.unique(action)) > 100
    assert len(np.unique(policy.greedy().act(observation, {}, Draws(1)).action)) == 1
    same = softlearning.GaussianPolicy(environment, (8, 4))
    assert [p.shape for p in same.network.parameters()] == [p.shape for p in policy.network.parameters()]
    assert softlearning.FeedforwardGaussianPolicy is softlearning.GaussianPolicy


def test_uniform_policy_samples_uniformly_within_the_action_bounds(environment: Environment) -> None:
    policy = softlearning.UniformPolicy(environment)
    observation = {name: np.zeros((4000, *box.shape), box.dtype) for name, box in policy.spec.observation.items()}
    counts, _ = np.histogram(policy.act(observation, {}, Draws(1)).action, bins=4, range=(-2, 2))
    assert counts.sum() == 4000
    assert counts.min() > 850


@pytest.mark.parametrize(("name", "members"), [("feedforward_Q_function", 1), ("double_feedforward_Q_function", 2)])
def test_q_functions_evaluate_a_batch_of_the_replay_pool(environment: Environment, name: str, members: int) -> None:
    pool = replay_pools.get({"class_name": "SimpleReplayPool", "config": {"max_size": 100}})
    sampler = samplers.get({"class_name": "SimpleSampler"}, environment)
    for trajectory in sampler.collect(softlearning.UniformPolicy(environment), 0, 30):
        pool.add(trajectory, version=0)
    assert pool.num_stored == 30
    rows = {key: torch.as_tensor(column) for key, column in pool.sample(np.random.default_rng(0), 5).items()}
    functions = value_functions.get({"class_name": name, "config": {"hidden_layer_sizes": [8]}}, environment)
    values = functions.action_values(observation_of(rows, "obs."), rows["action"] / 2)
    assert values.shape == (members, 5)
    assert len(values.unique()) == 5 * members, "networks start with different weights"


def test_prioritized_replay_pool_is_created() -> None:
    assert isinstance(replay_pools.get({"class_name": "PrioritizedReplayPool"}), Prioritized)


def test_goal_sampler_without_goals_is_rejected(environment: Environment) -> None:
    goals = make_environment(EnvironmentConfig(name="BitFlip", wrapper="goal"))
    assert "desired_goal" in samplers.get({"class_name": "GoalSampler"}, goals).spec.observation
    with pytest.raises(ConfigError, match="GoalSampler needs an environment with goals"):
        samplers.get({"class_name": "GoalSampler"}, environment)


def test_seed_determines_the_global_random_state() -> None:
    def draw() -> tuple[float, float, float]:
        softlearning.set_seed(3)
        return random.random(), float(np.random.random()), torch.rand(1).item()  # noqa: NPY002

    assert draw() == draw()


MISTAKES: dict[str, tuple[Callable[[Environment], object], str]] = {
    "unknown algorithm": (
        lambda e: algorithms.get({"class_name": "SAK"}, e),
        r"no algorithm is named 'SAK'; did .* SAC",
    ),
    "unknown argument": (
        lambda e: algorithms.get({"class_name": "SAC", "config": {"taw": 1}}, e),
        r"algorithm\.taw is not a setting; did you mean tau",
    ),
    "unknown policy": (lambda e: policies.get({"class_name": "GausianPolicy"}, e), r"did you mean GaussianPolicy\?"),
    "unknown function": (lambda e: value_functions.get({"class_name": "Q"}, e), r"no Q-function is named 'Q'"),
    "unknown pool": (lambda e: replay_pools.get({"class_name": "SimplePool"}), r"did you mean SimpleReplayPool\?"),
    "unknown sampler": (lambda e: samplers.get({"class_name": "Simple"}, e), r"no sampler is named 'Simple'"),
    "remote sampler": (lambda e: samplers.get({"class_name": "RemoteSampler"}, e), r"RemoteSampler needs Ray"),
    "argument of a pool": (
        lambda e: replay_pools.get({"class_name": "SimpleReplayPool", "config": {"maxsize": 3}}),
        r"'maxsize' is not an argument of a replay pool; did you mean max_size\?",
    ),
    "no class name": (lambda e: policies.get({"type": "GaussianPolicy"}, e), r"expected \{'class_name': 'Feed"),
    "discrete actions": (
        lambda e: value_functions.get({"class_name": "feedforward_Q_function"}, gymnasium.make("CartPole-v1")),
        r"needs continuous actions",
    ),
}


@pytest.mark.parametrize(("call", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_invalid_parameters_are_rejected(
    environment: Environment, call: Callable[[Environment], object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        call(environment)


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'GausianPolicy'"):
        softlearning.GausianPolicy  # noqa: B018
