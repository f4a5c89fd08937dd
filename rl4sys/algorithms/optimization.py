"""Optimizer steps with gradient clipping. No step is taken if a loss or gradient is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Annotated, Any, Literal, TypeAlias

import torch
from pydantic import BeforeValidator
from torch import Tensor, nn

from rl4sys.algorithms.core_optimizers import CoreAdam, CoreRMSprop, clipped_step
from rl4sys.errors import NumericalError

AUTO: Literal["auto"] = "auto"


def _check_norm(value: Any) -> Any:
    if value != AUTO and (not isinstance(value, int | float) or not value > 0):
        raise ValueError("expected a number above 0, or 'auto'")
    return value


GradNorm: TypeAlias = Annotated[float | Literal["auto"], BeforeValidator(_check_norm)]
"""Maximum gradient norm: a number, or "auto" for a multiple of the running norm."""

AUTO_FACTOR, AUTO_WINDOW = 3.0, 100
"""Settings of ``max_grad_norm: auto``: multiple of the running mean norm, and window of the mean in optimizer steps."""

_RUNNING_NORM = "usual_norm"
"""Key of the running gradient norm in the optimizer state, so that the norm is saved with the optimizer."""


def make_adam(trained: nn.Module | Sequence[Iterable[nn.Parameter]], lr: float, eps: float = 1e-8) -> CoreAdam:
    """Return Adam for all parameters of a module, or for parameter groups with separate learning rates."""
    groups = [trained.parameters()] if isinstance(trained, nn.Module) else trained
    return CoreAdam([{"params": list(group)} for group in groups], lr=lr, eps=eps)


def make_rmsprop(trained: nn.Module, lr: float) -> CoreRMSprop:
    """Return RMSprop for all parameters of a module, with decay 0.99 and epsilon 1e-5."""
    return CoreRMSprop(trained.parameters(), lr=lr, alpha=0.99, eps=1e-5, foreach=True)


def set_lr(optimizer: torch.optim.Optimizer, lr: float | Sequence[float]) -> None:
    """Set one learning rate for all parameter groups, or one per group."""
    groups = optimizer.param_groups
    rates = lr if isinstance(lr, Sequence) else [lr] * len(groups)
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate


def descend(
    optimizer: torch.optim.Optimizer,
    module: nn.Module,
    losses: Mapping[str, Tensor],
    max_grad_norm: float | Literal["auto"],
    steps: int,
) -> float:
    """Take one gradient step on the sum of ``losses``; return the gradient norm before clipping.

    With ``auto``, the gradient is clipped to three times the running norm of this optimizer.

    Raises `NumericalError` and leaves the weights unchanged if a loss or gradient is not finite.
    """
    return descend_in_parts(optimizer, module, [losses], max_grad_norm, steps)


def descend_in_parts(
    optimizer: torch.optim.Optimizer,
    module: nn.Module,
    parts: Iterable[Mapping[str, Tensor]],
    max_grad_norm: GradNorm,
    steps: int,
) -> float:
    """Take one gradient step like `descend`, on the sum of the losses of all parts of a minibatch.

    The backward pass of each part runs before the next part is computed, so only one part is in RAM at a time.
    """
    optimizer.zero_grad()
    losses: Mapping[str, Tensor] = {}
    for losses in parts:
        loss = reduce(torch.add, losses.values())
        loss.backward()  # type: ignore[no-untyped-call]
        if not math.isfinite(loss.item()):
            raise NumericalError(_describe(module, losses, steps))
    norm = take_step(optimizer, max_grad_norm)
    if not math.isfinite(norm):
        raise NumericalError(_describe(module, losses, steps))
    return norm


def take_step(optimizer: torch.optim.Optimizer, max_grad_norm: GradNorm) -> float:
    """Take an optimizer step with clipped gradients; return the gradient norm before clipping.

    If the norm is not finite, no step is taken.
    """
    max_norm = _auto_max_norm(optimizer) if max_grad_norm == AUTO else max_grad_norm
    norm = clipped_step(optimizer, max_norm)
    if max_grad_norm == AUTO and math.isfinite(norm):
        _add_norm(optimizer, min(norm, max_norm))
    return norm


def running_norm(optimizer: torch.optim.Optimizer) -> tuple[float, int]:
    """Return the running mean and the count of the clipped gradient norms; both are 0 before the first step."""
    norm = _state_of(optimizer).get(_RUNNING_NORM)
    return (float(norm["mean"]), int(norm["count"])) if norm else (0.0, 0)


def save_running_norm(optimizer: torch.optim.Optimizer, mean: float, count: int) -> None:
    _state_of(optimizer)[_RUNNING_NORM] = {
        "mean": torch.tensor(mean, dtype=torch.float64),
        "count": torch.tensor(count, dtype=torch.int64),
    }


def clipping_arguments(
    optimizer: torch.optim.Optimizer, max_grad_norm: GradNorm
) -> tuple[float, float, float, float, float]:
    """Return the clipping arguments for the core: maximum norm (0 for auto), factor, window, running mean and count."""
    max_norm = 0.0 if max_grad_norm == AUTO else float(max_grad_norm)
    return max_norm, AUTO_FACTOR, float(AUTO_WINDOW), *running_norm(optimizer)


def _auto_max_norm(optimizer: torch.optim.Optimizer) -> float:
    mean, _ = running_norm(optimizer)
    return AUTO_FACTOR * mean if mean > 0 else math.inf


def _add_norm(optimizer: torch.optim.Optimizer, norm: float) -> None:
    """Add a clipped norm to the running mean; because of clipping, a single outlier changes the mean little."""
    mean, count = running_norm(optimizer)
    save_running_norm(optimizer, mean + (norm - mean) / min(count + 1, AUTO_WINDOW), count + 1)


def _state_of(optimizer: torch.optim.Optimizer) -> dict[Any, Any]:
    """Return the mutable state of an optimizer by parameter. Torch also saves and restores entries with string keys."""
    return optimizer.state


def _describe(module: nn.Module, losses: Mapping[str, Tensor], steps: int) -> str:
    bad_losses = [name for name, loss in losses.items() if not torch.isfinite(loss)]
    gradients = [(name, p.grad) for name, p in module.named_parameters() if p.grad is not None]
    bad_gradients = [name for name, gradient in gradients if not torch.isfinite(gradient).all()]
    source = f"the loss {bad_losses[0]!r}" if bad_losses else f"the gradient of {(bad_gradients or ['all'])[0]!r}"
    return (
        f"{source} is not finite at step {steps}; likely causes are a learning rate that is too high or very "
        "large rewards: lower algorithm.lr, or set environment.normalize_reward. This update did not change the weights"
    )
