"""Action distributions of an actor: log-probability, entropy and KL divergence."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from rl4sys.networks.base import to_array
from rl4sys.policy.program import Operation
from rl4sys.spec import Box, Columns, Discrete, DiscreteSpace, Space

ILLEGAL = -1e9
"""Logit or Q-value of an illegal action: too low to be selected, but finite, because 0 * infinity is NaN."""


def categorical_terms(logits: Tensor, action: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return action log-probability and entropy of each row, for a categorical distribution over legal actions."""
    log_probs = legal_logits(logits, mask).log_softmax(-1)
    chosen = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    return chosen, -(log_probs.exp() * log_probs).sum(-1)


def legal_logits(logits: Tensor, mask: Tensor | None) -> Tensor:
    return logits if mask is None else logits.masked_fill(~mask, ILLEGAL)


def categorical_kl(old_logits: Tensor, logits: Tensor) -> Tensor:
    """Return KL(old || new) of each row, for categorical distributions."""
    old, new = old_logits.log_softmax(-1), logits.log_softmax(-1)
    return (old.exp() * (old - new)).sum(-1)


def gaussian_terms(mean: Tensor, log_std: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Return action log-density and entropy of each row, for a diagonal Gaussian."""
    z = (action - mean) * (-log_std).exp()
    log_prob = (-0.5 * z**2 - log_std).sum(-1) - 0.5 * math.log(2 * math.pi) * mean.shape[-1]
    entropy = (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1).expand(len(mean))
    return log_prob, entropy


def gaussian_kl(old_mean: Tensor, old_log_std: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return KL(old || new) of each row, for diagonal Gaussians."""
    variance_ratio = (2 * (old_log_std - log_std)).exp()
    distance = ((old_mean - mean) * (-log_std).exp()) ** 2
    return (log_std - old_log_std + 0.5 * (variance_ratio + distance - 1)).sum(-1)


class DistributionParams(NamedTuple):
    """Parameters of the action distribution of each row: masked network outputs, and ``log_std`` shared by all rows."""

    outputs: Tensor
    log_std: Tensor


class Distribution(Protocol):
    """Action distribution for one kind of action space."""

    deviations: int
    """Length of ``log_std``: the number of continuous action dimensions, or 0 for discrete actions."""

    def head(self, log_std: Tensor) -> tuple[Operation, Columns]:
        """Return the program operation that samples an action from the network outputs, and the operation's weights."""

    def terms(self, params: DistributionParams, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return action log-probability and entropy of each row."""

    def kl(self, old: DistributionParams, new: DistributionParams) -> Tensor:
        """Return the KL divergence KL(old || new) of each row."""


class CategoricalDistribution:
    """Categorical distribution of discrete or MultiDiscrete actions.

    The dimensions of a MultiDiscrete action are independent, so their log-probabilities are summed.
    """

    deviations = 0

    def __init__(self, space: DiscreteSpace) -> None:
        self._space = space
        # Logit indices of each action dimension; padding points to the illegal logit that `_by_dimension` appends.
        own = np.arange(max(space.parts)) < np.array(space.parts)[:, None]
        self._indices = torch.from_numpy(np.where(own, np.cumsum(own).reshape(own.shape) - 1, own.sum()).ravel())

    def head(self, log_std: Tensor) -> tuple[Operation, Columns]:
        if isinstance(self._space, Discrete):
            return Operation("categorical"), {}
        return Operation("multi_categorical", ("choices",)), {"choices": np.array(self._space.choices, np.float32)}

    def terms(self, params: DistributionParams, action: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(self._space, Discrete):
            # Same result as the general case below, but makes a PPO update 5 % faster.
            return categorical_terms(params.outputs, action)
        log_prob, entropy = categorical_terms(self._by_dimension(params.outputs), action)
        return log_prob.sum(-1), entropy.sum(-1)

    def kl(self, old: DistributionParams, new: DistributionParams) -> Tensor:
        return categorical_kl(self._by_dimension(old.outputs), self._by_dimension(new.outputs)).sum(-1)

    def _by_dimension(self, outputs: Tensor) -> Tensor:
        """Reshape logits to (rows, dimensions, actions of the largest dimension).

        Dimensions with fewer actions are padded with illegal logits.
        """
        padded = torch.nn.functional.pad(outputs, (0, 1), value=ILLEGAL)
        return padded.index_select(1, self._indices.to(outputs.device)).reshape(
            len(outputs), len(self._space.parts), -1
        )


class GaussianDistribution:
    """Diagonal Gaussian with the network outputs as mean; the standard deviation does not depend on the observation."""

    def __init__(self, space: Box) -> None:
        self.deviations = space.size

    def head(self, log_std: Tensor) -> tuple[Operation, Columns]:
        return Operation("gaussian", ("log_std",)), {"log_std": to_array(log_std)}

    def terms(self, params: DistributionParams, action: Tensor) -> tuple[Tensor, Tensor]:
        return gaussian_terms(params.outputs, params.log_std, action.reshape(len(action), -1))

    def kl(self, old: DistributionParams, new: DistributionParams) -> Tensor:
        return gaussian_kl(*old, *new)


def distribution_of(space: Space) -> Distribution:
    return GaussianDistribution(space) if isinstance(space, Box) else CategoricalDistribution(space)
