"""Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv:1509.02971).

Implemented as TD3 with one critic, without delayed policy updates and without target policy smoothing.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rl4sys.algorithms.td3 import TD3, TD3Config


class DDPGConfig(TD3Config):
    """Options of the `ddpg` algorithm: those of `td3`, with different defaults."""

    policy_delay: int = Field(default=1, gt=0)
    """Number of critic updates per actor update."""
    target_noise: float = Field(default=0.0, ge=0)
    """Standard deviation of the target policy smoothing noise."""


class DDPG(TD3):
    Config = DDPGConfig
    fits_core: ClassVar = True
    critics: ClassVar[int] = 1
