"""Rainbow (Hessel et al. 2018, arXiv:1710.02298): double, dueling, prioritised, several steps, distributions, noise."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rl4sys.algorithms.c51 import C51, C51Config
from rl4sys.algorithms.schedule import Schedule


class RainbowConfig(C51Config):
    """Options of `rainbow`: those of c51, with everything switched on.

    Its noisy networks are an option of the network (``network.critic.noisy: true``), and its replay by priority one of
    the buffer, by default.
    """

    dueling: bool = True
    """Estimate the value of the state and the advantage of each action apart (Wang et al. 2016)."""
    n_step: int = Field(default=3, gt=0, le=10_000)
    """Rewards summed before the estimate of the rest."""
    exploration: Schedule = Schedule(start=1.0, end=0.02, fraction=0.1)
    """Probability of a random action, beside the noise of the network; 0 where that is enough."""


class Rainbow(C51):
    Config = RainbowConfig
    usual_buffer: ClassVar = {"type": "prioritized", "size": 100_000}
