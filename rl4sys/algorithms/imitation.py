"""Behavior cloning for warm starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from rl4sys.algorithms.base import Algorithm, Metrics
from rl4sys.algorithms.off_policy import TargetUpdater, weighted_mean
from rl4sys.algorithms.optimization import descend, make_adam
from rl4sys.config import Config
from rl4sys.dataset import DatasetConfig
from rl4sys.errors import ConfigError
from rl4sys.networks.base import Tensors, memory_size
from rl4sys.networks.torch_policy import to_tensors
from rl4sys.spec import Columns


class WarmStartConfig(Config):
    """Options of the ``warm_start`` block: pretraining of the policy on recorded decisions by behavior cloning."""

    dataset: DatasetConfig
    """Dataset of recorded decisions."""
    gradient_steps: int = Field(default=1000, gt=0, le=1_000_000)
    """Number of gradient steps of behavior cloning before training starts."""
    batch_size: int = Field(default=256, gt=0, le=1_000_000)
    """Number of recorded decisions per gradient step."""
    lr: float = Field(default=1e-3, gt=0)
    """Learning rate of Adam."""


def cloning_loss(log_prob: Tensor, rows: Tensors) -> Tensor:
    """Return the mean negative log-likelihood of the recorded actions."""
    return -weighted_mean(log_prob, rows)


@dataclass(frozen=True)
class Imitation:
    """Network to pretrain, and its behavior cloning loss on a batch of rows."""

    network: nn.Module
    loss: Callable[[Tensors], Tensor]
    copies: Sequence[nn.Module] = ()
    """Target networks that receive a copy of the pretrained weights."""


@runtime_checkable
class SupportsImitation(Protocol):
    """Algorithm that supports a warm start."""

    def imitation(self) -> Imitation: ...


def imitate(algorithm: Algorithm, config: WarmStartConfig, decisions: Columns, rng: np.random.Generator) -> Metrics:
    """Pretrain the policy on ``decisions`` (columns ``obs.*`` and ``action``); return the first and the last loss."""
    if not isinstance(algorithm, SupportsImitation):
        raise ConfigError(
            "warm_start is set, but this algorithm does not support a warm start (it has no imitation() method); "
            "remove the warm_start block"
        )
    imitation = algorithm.imitation()
    if memory_size(imitation.network):
        raise ConfigError(
            "warm_start trains on single decisions, but the actor network is recurrent; use a network that is not "
            "recurrent, such as mlp, or a transformer on a history of observations"
        )
    optimizer = make_adam(imitation.network, config.lr, eps=1e-8)
    device = next(imitation.network.parameters()).device
    losses = []
    for _ in range(config.gradient_steps):
        chosen = rng.integers(len(decisions["action"]), size=config.batch_size)
        loss = imitation.loss(to_tensors({name: column[chosen] for name, column in decisions.items()}, device))
        descend(optimizer, imitation.network, {"imitation": loss}, math.inf, steps=0)
        losses.append(loss.item())
    for copy in imitation.copies:
        TargetUpdater(copy, imitation.network).update(1)
    return {"imitation/first_loss": losses[0], "imitation/last_loss": losses[-1]}
