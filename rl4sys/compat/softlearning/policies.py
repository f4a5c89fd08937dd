"""Factory of untrained policies by class name."""

from __future__ import annotations

from collections.abc import Sequence

from rl4sys.compat.softlearning import algorithms
from rl4sys.compat.softlearning.components import split
from rl4sys.config import Settings
from rl4sys.environments.base import Environment
from rl4sys.networks.torch_policy import TorchPolicy

_GAUSSIAN = ("FeedforwardGaussianPolicy", "GaussianPolicy")
_UNIFORM = ("ContinuousUniformPolicy", "UniformPolicy")


def get(params: Settings, environment: Environment, seed: int = 0) -> TorchPolicy:
    """Return an untrained policy for ``environment``.

    `network` is its torch module, `act` draws actions, and `greedy()` is its deterministic form. ``params`` is
    ``{"class_name": "FeedforwardGaussianPolicy", "config": {"hidden_layer_sizes": [256, 256]}}``.
    """
    name, config = split(params, "policy", (*_GAUSSIAN, *_UNIFORM))
    actor = {"class_name": _GAUSSIAN[0], "config": config}
    # Soft actor-critic provides both policies: until learning_starts its actions are uniform, then Gaussian.
    starts = {"learning_starts": 1 if name in _UNIFORM else 0}
    learner = algorithms.get({"class_name": "SAC", "config": starts}, environment, {"policy_params": actor}, seed)
    policy = learner.algorithm.policy(0)
    assert isinstance(policy, TorchPolicy)  # the policy of soft actor-critic is a TorchPolicy
    return policy


def FeedforwardGaussianPolicy(
    environment: Environment, hidden_layer_sizes: Sequence[int] = (256, 256), seed: int = 0
) -> TorchPolicy:
    """Return an untrained Gaussian policy with a fully connected network; actions are squashed to their bounds."""
    config = {"hidden_layer_sizes": list(hidden_layer_sizes)}
    return get({"class_name": "FeedforwardGaussianPolicy", "config": config}, environment, seed)


GaussianPolicy = FeedforwardGaussianPolicy


def UniformPolicy(environment: Environment) -> TorchPolicy:
    """Return a policy that draws uniformly distributed actions."""
    return get({"class_name": "UniformPolicy"}, environment)
