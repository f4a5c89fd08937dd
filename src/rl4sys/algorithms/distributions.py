"""What an actor's outputs say of actions: how likely each is, how undecided the actor, how far it is from another."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from rl4sys.networks.base import to_array
from rl4sys.policy.program import Operation
from rl4sys.spec import Box, Choices, Columns, Discrete, Space

ILLEGAL = -1e9
"""A logit or a value low enough that its action is never taken, yet finite: 0 times it is 0."""


def categorical_terms(logits: Tensor, action: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Log-probability of each action, and the entropy, over the legal actions."""
    log_probs = legal_logits(logits, mask).log_softmax(-1)
    chosen = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    return chosen, -(log_probs.exp() * log_probs).sum(-1)


def legal_logits(logits: Tensor, mask: Tensor | None) -> Tensor:
    return logits if mask is None else logits.masked_fill(~mask, ILLEGAL)


def categorical_kl(old_logits: Tensor, logits: Tensor) -> Tensor:
    """KL(old, new) of each row."""
    old, new = old_logits.log_softmax(-1), logits.log_softmax(-1)
    return (old.exp() * (old - new)).sum(-1)


def gaussian_terms(mean: Tensor, log_std: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Log-density of each action, and the entropy, of independent normals."""
    z = (action - mean) * (-log_std).exp()
    log_prob = (-0.5 * z**2 - log_std).sum(-1) - 0.5 * math.log(2 * math.pi) * mean.shape[-1]
    entropy = (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1).expand(len(mean))
    return log_prob, entropy


def gaussian_kl(old_mean: Tensor, old_log_std: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """KL(old, new) of each row, of independent normals."""
    variance_ratio = (2 * (old_log_std - log_std)).exp()
    distance = ((old_mean - mean) * (-log_std).exp()) ** 2
    return (log_std - old_log_std + 0.5 * (variance_ratio + distance - 1)).sum(-1)


class Law(NamedTuple):
    """All that decides an actor's actions: its outputs, a row each, the illegal ruled out, and its ``log_std``."""

    outputs: Tensor
    log_std: Tensor


class Distribution(Protocol):
    """How laws are read for one kind of actions."""

    deviations: int
    """Elements of ``log_std``: one for each number of an action, none for choices."""

    def head(self, log_std: Tensor) -> tuple[Operation, Columns]:
        """What draws from an actor's outputs, and its weights."""

    def terms(self, law: Law, action: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of each row's action, and the entropy."""

    def kl(self, old: Law, new: Law) -> Tensor:
        """KL(old, new) of each row."""


class ChoiceDistribution:
    """One choice or several at once, which are independent of each other: what is said of their parts adds up."""

    deviations = 0

    def __init__(self, space: Choices) -> None:
        self._space = space
        # Numbers beyond a part's own stand for the illegal one that `_by_part` puts after all outputs.
        own = np.arange(max(space.parts)) < np.array(space.parts)[:, None]
        self._places = torch.from_numpy(np.where(own, np.cumsum(own).reshape(own.shape) - 1, own.sum()).ravel())

    def head(self, log_std: Tensor) -> tuple[Operation, Columns]:
        if isinstance(self._space, Discrete):
            return Operation("categorical"), {}
        return Operation("multi_categorical", ("choices",)), {"choices": np.array(self._space.choices, np.float32)}

    def terms(self, law: Law, action: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(self._space, Discrete):
            # What follows would give the same, and take an update of PPO a twentieth longer.
            return categorical_terms(law.outputs, action)
        log_prob, entropy = categorical_terms(self._by_part(law.outputs), action)
        return log_prob.sum(-1), entropy.sum(-1)

    def kl(self, old: Law, new: Law) -> Tensor:
        return categorical_kl(self._by_part(old.outputs), self._by_part(new.outputs)).sum(-1)

    def _by_part(self, outputs: Tensor) -> Tensor:
        """(rows, parts, most choices); what a smaller part has too few is filled up with illegal ones."""
        padded = torch.nn.functional.pad(outputs, (0, 1), value=ILLEGAL)
        return padded.index_select(1, self._places.to(outputs.device)).reshape(len(outputs), len(self._space.parts), -1)


class NumberDistribution:
    """Independent normals around an actor's outputs; the deviations are the same in every state."""

    def __init__(self, space: Box) -> None:
        self.deviations = space.size

    def head(self, log_std: Tensor) -> tuple[Operation, Columns]:
        return Operation("gaussian", ("log_std",)), {"log_std": to_array(log_std)}

    def terms(self, law: Law, action: Tensor) -> tuple[Tensor, Tensor]:
        return gaussian_terms(law.outputs, law.log_std, action.reshape(len(action), -1))

    def kl(self, old: Law, new: Law) -> Tensor:
        return gaussian_kl(*old, *new)


def distribution_of(space: Space) -> Distribution:
    return NumberDistribution(space) if isinstance(space, Box) else ChoiceDistribution(space)
