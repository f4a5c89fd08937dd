"""Quantile regression deep Q-learning (Dabney et al. 2018, arXiv:1710.10044)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.algorithms.dqn import DQN, DQNConfig, of_choice
from rl4sys.algorithms.off_policy import td_target
from rl4sys.networks.base import Tensors, observation_of
from rl4sys.networks.distribution import QuantileValues


class QRDQNConfig(DQNConfig):
    """Options of `qr_dqn`: those of dqn, and one more."""

    quantiles: int = Field(default=50, gt=0, le=10_000)
    """How many describe the distribution of the return."""

    @property
    def numbers_per_choice(self) -> int:
        return self.quantiles


def quantile_loss(quantiles: Tensor, target: Tensor) -> Tensor:
    """Equation 10, with kappa 1: (rows, n) quantiles against (rows, m) samples of what they should be."""
    middles = (torch.arange(quantiles.shape[-1], device=quantiles.device) + 0.5) / quantiles.shape[-1]
    error = target.unsqueeze(-2) - quantiles.unsqueeze(-1)
    huber = nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none")
    weight = (middles.unsqueeze(-1) - (error.detach() < 0).float()).abs()
    return (weight * huber).mean(-1).sum(-1)


class QRDQN(DQN):
    Config = QRDQNConfig
    _critic: QuantileValues
    _target: QuantileValues

    def _valued(self, network: nn.Module) -> nn.Module:
        return QuantileValues(network, self._choices, self._options.numbers_per_choice)

    def _errors(self, rows: Tensors) -> tuple[Tensor, Tensor, Tensor]:
        quantiles = of_choice(self._critic.quantiles(observation_of(rows, "obs.")), rows["action"])
        target = self._wanted(rows)
        error = (quantiles.mean(-1) - target.mean(-1)).detach().abs()
        return quantile_loss(quantiles, target), quantiles.mean(-1), error

    @torch.no_grad()
    def _wanted(self, rows: Tensors) -> Tensor:
        """Samples of the return by what followed."""
        observation = observation_of(rows, "next_obs.")
        quantiles = self._target.quantiles(observation)
        following = of_choice(quantiles, self._next_choice(observation, quantiles.mean(-1)))
        reward, discount, terminated = (rows[name].unsqueeze(-1) for name in ("reward", "discount", "terminated"))
        return td_target(reward, discount, terminated, following)
