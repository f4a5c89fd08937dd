"""The step of an optimiser, refused where it would spoil the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import torch
from torch import Tensor, nn

from rl4sys.algorithms.adam import CoreAdam, clipped_step
from rl4sys.errors import NumericalError


def make_adam(learnt: nn.Module | Sequence[Iterable[nn.Parameter]], lr: float, eps: float) -> CoreAdam:
    """For all parameters of a module, or for groups of them whose rates `set_lr` can tell apart."""
    groups = [learnt.parameters()] if isinstance(learnt, nn.Module) else learnt
    return CoreAdam([{"params": list(group)} for group in groups], lr=lr, eps=eps)


def make_rmsprop(learnt: nn.Module, lr: float) -> torch.optim.RMSprop:
    """As the actor-critic papers have it: squares averaged over about a hundred steps, a small constant added."""
    return torch.optim.RMSprop(learnt.parameters(), lr=lr, alpha=0.99, eps=1e-5, foreach=True)


def set_lr(optimizer: torch.optim.Optimizer, lr: float | Sequence[float]) -> None:
    """One rate for all groups of parameters, or one each."""
    groups = optimizer.param_groups
    rates = lr if isinstance(lr, Sequence) else [lr] * len(groups)
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate


def descend(
    optimizer: torch.optim.Optimizer, module: nn.Module, losses: Mapping[str, Tensor], max_grad_norm: float, steps: int
) -> float:
    """One step down the sum of ``losses``; returns the gradient's norm before clipping.

    Raises `NumericalError`, with the weights untouched, if a loss or a gradient is not finite.
    """
    optimizer.zero_grad()
    loss = reduce(torch.add, losses.values())
    loss.backward()  # type: ignore[no-untyped-call]
    norm = clipped_step(optimizer, max_grad_norm) if math.isfinite(loss.item()) else math.inf
    if not math.isfinite(norm):
        raise NumericalError(_describe(module, losses, steps))
    return norm


def _describe(module: nn.Module, losses: Mapping[str, Tensor], steps: int) -> str:
    bad_losses = [name for name, loss in losses.items() if not torch.isfinite(loss)]
    gradients = [(name, p.grad) for name, p in module.named_parameters() if p.grad is not None]
    bad_gradients = [name for name, gradient in gradients if not torch.isfinite(gradient).all()]
    what = f"the loss {bad_losses[0]!r}" if bad_losses else f"the gradient of {(bad_gradients or ['all'])[0]!r}"
    return (
        f"{what} is not finite at step {steps}; likely causes are a learning rate that is too high or rewards of "
        "huge size: lower algorithm.lr, or set environment.normalize_reward. The weights are those before this update"
    )
