"""Soft Q-learning samples actions near all modes of the reward; a Gaussian policy does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl4sys.algorithms.base import Algorithm, AlgorithmSetup
from rl4sys.algorithms.sac import SAC, SACConfig
from rl4sys.algorithms.sql import SoftQ, SoftQConfig
from rl4sys.buffers.base import BufferConfig
from rl4sys.networks.base import NetworkConfig
from rl4sys.networks.mlp import MLPConfig
from rl4sys.policy.draws import Draws
from rl4sys.spec import Array, Box, Spec

SPEC = Spec({"state": Box((1,))}, Box((1,), low=(-1.0,), high=(1.0,)))
MODES, WIDTH = (-0.5, 0.5), 0.15
ROWS = 32
OPTIONS: Any = {"gamma": 0.0, "lr": 3e-3, "batch_size": ROWS, "learning_starts": 0}


def energy(action: Array) -> Array:
    """Return the log-density, up to a constant, of an equal mixture of two normal distributions."""
    return np.logaddexp(*(-0.5 * ((action - mode) / WIDTH) ** 2 for mode in MODES))


def actions_after_training(algorithm: Algorithm, updates: int) -> Array:
    """Train on one-step episodes with the energy as reward; returns 1000 sampled actions."""
    rng, nothing = np.random.default_rng(0), np.zeros((ROWS, 1), np.float32)
    for step in range(updates):
        action = rng.uniform(-1, 1, (ROWS, 1)).astype(np.float32)
        batch = {
            "obs.state": nothing,
            "next_obs.state": nothing,
            "action": action,
            "reward": energy(action).ravel(),
            "discount": np.zeros(ROWS, np.float32),
            "terminated": np.ones(ROWS, bool),
        }
        algorithm.update(batch, steps=step)
    observation = {"state": np.zeros((1000, 1), np.float32)}
    return algorithm.policy(steps=updates).act(observation, {}, Draws(1)).action.ravel()


def setup(options: SoftQConfig | SACConfig) -> AlgorithmSetup[SoftQConfig | SACConfig]:
    network = MLPConfig(hidden_dims=[64, 64], activation="relu", initialization="uniform")
    networks: Mapping[str, NetworkConfig] = {"actor": network, "critic": network}
    return AlgorithmSetup(SPEC, options, networks, BufferConfig(type="uniform", size=10), np.random.SeedSequence(1))


def near_modes(actions: Array) -> float:
    return float(np.mean(np.min([abs(actions - mode) for mode in MODES], axis=0) < 2 * WIDTH))


def between(actions: Array) -> float:
    return float(np.mean(abs(actions) < 0.2))


def test_soft_q_actions_are_near_both_modes_of_the_reward() -> None:
    actions = actions_after_training(SoftQ(setup(SoftQConfig(name="sql", value_samples=1, **OPTIONS))), updates=1300)
    assert near_modes(actions) >= 0.90
    assert between(actions) <= 0.08
    assert 0.3 < np.mean(actions > 0) < 0.7


def test_gaussian_policy_has_actions_between_the_modes() -> None:
    # At temperature 1 the optimal policy is proportional to exp(energy).
    actions = actions_after_training(SAC(setup(SACConfig(name="sac", temperature=1.0, **OPTIONS))), updates=500)
    assert near_modes(actions) < 0.80
    assert between(actions) > 0.15
