"""Rainbow (Hessel et al. 2018, arXiv:1710.02298): C51 combined with five other extensions of DQN.

These are double Q-learning, dueling networks, n-step returns, noisy networks and prioritized replay.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rl4sys.algorithms.c51 import C51, C51Config
from rl4sys.algorithms.schedule import Schedule


class RainbowConfig(C51Config):
    """Options of the `rainbow` algorithm: those of `c51`, with dueling networks and n-step returns by default.

    Noisy networks are an option of the network (``network.critic.noisy: true``). Prioritized replay is the default
    buffer.
    """

    dueling: bool = True
    """Use a dueling network, with separate outputs for state value and action advantages (Wang et al. 2016)."""
    n_step: int = Field(default=3, gt=0, le=10_000)
    """Number of rewards summed before bootstrapping (n-step return)."""
    exploration: Schedule = Schedule(start=1.0, end=0.02, fraction=0.1)
    """Epsilon: probability of a random action, in addition to noisy networks; 0 disables random actions."""


class Rainbow(C51):
    Config = RainbowConfig
    default_buffer: ClassVar = {"type": "prioritized", "size": 100_000}
