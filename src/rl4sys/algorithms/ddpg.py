"""Deep deterministic policy gradients (Lillicrap et al. 2016, arXiv:1509.02971): TD3 without what TD3 added."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rl4sys.algorithms.td3 import TD3, TD3Config


class DDPGConfig(TD3Config):
    """Options of `ddpg`: those of td3, with other defaults."""

    policy_delay: int = Field(default=1, gt=0)
    """Gradient steps of the critic for each of the actor."""
    target_noise: float = Field(default=0.0, ge=0)
    """Deviation of the noise added to the actions that targets are computed with."""


class DDPG(TD3):
    Config = DDPGConfig
    fits_core: ClassVar = True
    critics: ClassVar[int] = 1
