"""Quantile regression deep Q-learning (Dabney et al. 2018, arXiv:1710.10044)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from rl4sys.algorithms.dqn import DQN, DQNConfig, values_of_action
from rl4sys.algorithms.off_policy import td_target
from rl4sys.networks.base import Tensors, observation_of
from rl4sys.networks.distributional import QuantileValues


class QRDQNConfig(DQNConfig):
    """Options of the `qr_dqn` algorithm: those of `dqn`, and the number of quantiles."""

    quantiles: int = Field(default=50, gt=0, le=10_000)
    """Number of quantiles of the return distribution."""

    @property
    def outputs_per_action(self) -> int:
        return self.quantiles


def quantile_loss(quantiles: Tensor, target: Tensor) -> Tensor:
    """Return the quantile Huber loss of each row, equation 10 with kappa 1; shapes are (rows, n) and (rows, m)."""
    middles = (torch.arange(quantiles.shape[-1], device=quantiles.device) + 0.5) / quantiles.shape[-1]
    error = target.unsqueeze(-2) - quantiles.unsqueeze(-1)
    huber = nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none")
    weight = (middles.unsqueeze(-1) - (error.detach() < 0).float()).abs()
    return (weight * huber).mean(-1).sum(-1)


class QRDQN(DQN):
    Config = QRDQNConfig
    _critic: QuantileValues
    _target: QuantileValues

    def _with_value_output(self, network: nn.Module) -> nn.Module:
        return QuantileValues(network, self._action_count, self._options.outputs_per_action)

    def _errors(self, rows: Tensors) -> tuple[Tensor, Tensor, Tensor]:
        quantiles = values_of_action(self._critic.quantiles(observation_of(rows, "obs.")), rows["action"])
        target = self._target_samples(rows)
        error = (quantiles.mean(-1) - target.mean(-1)).detach().abs()
        return quantile_loss(quantiles, target), quantiles.mean(-1), error

    @torch.no_grad()
    def _target_samples(self, rows: Tensors) -> Tensor:
        """Return the target quantiles: reward plus discounted next-state quantiles of the target network."""
        observation = observation_of(rows, "next_obs.")
        quantiles = self._target.quantiles(observation)
        following = values_of_action(quantiles, self._next_action(observation, quantiles.mean(-1)))
        reward, discount, terminated = (rows[name].unsqueeze(-1) for name in ("reward", "discount", "terminated"))
        return td_target(reward, discount, terminated, following)
