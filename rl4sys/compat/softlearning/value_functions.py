"""Factory of Q-functions by class name."""

from __future__ import annotations

import numpy as np

from rl4sys.algorithms.off_policy import BoxActions, Critics, critic_blueprint
from rl4sys.compat.softlearning.components import learner_config, spec_of, split
from rl4sys.config import Settings
from rl4sys.environments.base import Environment
from rl4sys.errors import ConfigError
from rl4sys.learner.config import algorithm_setup
from rl4sys.spec import Box

_MEMBERS = {"double_feedforward_Q_function": 2, "feedforward_Q_function": 1}
"""Number of networks by class name."""


def get(params: Settings, environment: Environment, seed: int = 0) -> Critics:
    """Return untrained Q-functions of observation and action, as a torch module.

    `action_values(observation, action)` returns one row per network; ``action`` must be scaled to -1..1. ``params`` is
    ``{"class_name": "double_feedforward_Q_function", "config": {"hidden_layer_sizes": [256, 256]}}``.
    """
    name, config = split(params, "Q-function", tuple(_MEMBERS))
    spec = spec_of(environment)
    if not isinstance(spec.action, Box):
        raise ConfigError(
            "a Q-function of observation and action needs continuous actions; for discrete actions use DQN"
        )
    critic = {"class_name": name, "config": config}
    options = learner_config({"algorithm_params": {"class_name": "SAC"}, "Q_params": critic})
    setup = algorithm_setup(spec, options, np.random.SeedSequence(seed))
    seeds = setup.seed.generate_state(_MEMBERS[name]).tolist()
    return Critics(setup, critic_blueprint(spec, BoxActions(spec)), seeds)
