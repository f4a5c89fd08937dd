"""To do what was done: how an algorithm's policy starts from decisions that somebody recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from rl4sys.algorithms.base import Algorithm, Metrics
from rl4sys.algorithms.numerics import descend, make_adam
from rl4sys.algorithms.off_policy import Following, weighted_mean
from rl4sys.config import Config
from rl4sys.dataset import DatasetConfig
from rl4sys.errors import ConfigError
from rl4sys.networks.acting import to_tensors
from rl4sys.networks.base import Tensors, memory_size
from rl4sys.spec import Columns


class WarmStartConfig(Config):
    """The ``warm_start`` block: decisions that the first policy is to repeat."""

    dataset: DatasetConfig
    """Where they are recorded."""
    gradient_steps: int = Field(default=1000, gt=0, le=1_000_000)
    """Gradient steps towards them, before anything else is learnt."""
    batch_size: int = Field(default=256, gt=0, le=1_000_000)
    """Decisions per gradient step."""
    lr: float = Field(default=1e-3, gt=0)
    """Step size of Adam."""


def cloning_loss(log_prob: Tensor, rows: Tensors) -> Tensor:
    """How unlikely the policy is to do what was done."""
    return -weighted_mean(log_prob, rows)


@dataclass(frozen=True)
class Imitation:
    """What an algorithm acts by, and how far that is from what was done in some rows."""

    network: nn.Module
    loss: Callable[[Tensors], Tensor]
    copies: Sequence[nn.Module] = ()
    """Target networks, which are to start from the same."""


@runtime_checkable
class Imitating(Protocol):
    """An algorithm that can start from what was recorded."""

    def imitation(self) -> Imitation: ...


def imitate(algorithm: Algorithm, config: WarmStartConfig, decisions: Columns, rng: np.random.Generator) -> Metrics:
    """Have the algorithm act as in ``decisions``, which are observations, ``obs.*``, and an action each."""
    if not isinstance(algorithm, Imitating):
        raise ConfigError(
            "there is a warm_start, and this algorithm has no imitation() to start with; remove the block"
        )
    imitation = algorithm.imitation()
    if memory_size(imitation.network):
        raise ConfigError(
            "warm_start learns from single decisions, and the network that acts remembers; use one without memory, "
            "such as mlp or, over the last few observations, transformer"
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
        Following(copy, imitation.network).move(1)
    return {"imitation/first_loss": losses[0], "imitation/last_loss": losses[-1]}
