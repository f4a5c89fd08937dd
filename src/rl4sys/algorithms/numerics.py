"""The step of an optimiser, refused where it would spoil the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Annotated, Any, Literal, TypeAlias

import torch
from pydantic import BeforeValidator
from torch import Tensor, nn

from rl4sys.algorithms.adam import CoreAdam, clipped_step
from rl4sys.errors import NumericalError

AUTO: Literal["auto"] = "auto"


def _check_norm(value: Any) -> Any:
    if value != AUTO and (not isinstance(value, int | float) or not value > 0):
        raise ValueError("it should be a number above 0, or auto")
    return value


GradNorm: TypeAlias = Annotated[float | Literal["auto"], BeforeValidator(_check_norm)]
"""How long gradients may be: a number, or by what is usual for them."""

_USUAL = "usual_norm"
"""Where an optimiser keeps what is usual, beside what it remembers of each parameter, so that it is saved with that."""
_TIMES_USUAL, _REMEMBERED = 3.0, 100


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
    optimizer: torch.optim.Optimizer,
    module: nn.Module,
    losses: Mapping[str, Tensor],
    max_grad_norm: float | Literal["auto"],
    steps: int,
) -> float:
    """One step down the sum of ``losses``; returns the gradient's norm before clipping.

    With ``auto`` the gradient is shortened to three times what was usual for this optimiser's gradients so far.

    Raises `NumericalError`, with the weights untouched, if a loss or a gradient is not finite.
    """
    optimizer.zero_grad()
    loss = reduce(torch.add, losses.values())
    loss.backward()  # type: ignore[no-untyped-call]
    longest = _longest_usual(optimizer) if max_grad_norm == AUTO else max_grad_norm
    norm = clipped_step(optimizer, longest) if math.isfinite(loss.item()) else math.inf
    if not math.isfinite(norm):
        raise NumericalError(_describe(module, losses, steps))
    if max_grad_norm == AUTO:
        _remember_norm(optimizer, min(norm, longest))
    return norm


def _longest_usual(optimizer: torch.optim.Optimizer) -> float:
    """Without a bound until there was a gradient to say what is usual."""
    usual = _remembered(optimizer).get(_USUAL)
    return _TIMES_USUAL * float(usual["mean"]) if usual and usual["mean"] > 0 else math.inf


def _remember_norm(optimizer: torch.optim.Optimizer, norm: float) -> None:
    """A running mean of norms after clipping: an outlier moves it little, and lasting growth is followed."""
    zero = {"mean": torch.zeros((), dtype=torch.float64), "count": torch.zeros((), dtype=torch.int64)}
    usual = _remembered(optimizer).setdefault(_USUAL, zero)
    usual["count"] += 1
    usual["mean"] += (norm - usual["mean"]) / usual["count"].clamp(max=_REMEMBERED)


def _remembered(optimizer: torch.optim.Optimizer) -> dict[Any, Any]:
    """By parameter, as torch has it; but names may be keys too, and are saved and loaded like them."""
    return optimizer.state


def _describe(module: nn.Module, losses: Mapping[str, Tensor], steps: int) -> str:
    bad_losses = [name for name, loss in losses.items() if not torch.isfinite(loss)]
    gradients = [(name, p.grad) for name, p in module.named_parameters() if p.grad is not None]
    bad_gradients = [name for name, gradient in gradients if not torch.isfinite(gradient).all()]
    what = f"the loss {bad_losses[0]!r}" if bad_losses else f"the gradient of {(bad_gradients or ['all'])[0]!r}"
    return (
        f"{what} is not finite at step {steps}; likely causes are a learning rate that is too high or rewards of "
        "huge size: lower algorithm.lr, or set environment.normalize_reward. The weights are those before this update"
    )
