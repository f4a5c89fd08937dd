"""The step of an optimiser, refused where it would spoil the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Annotated, Any, Literal, TypeAlias

import torch
from pydantic import BeforeValidator
from torch import Tensor, nn

from rl4sys.algorithms.adam import CoreAdam, CoreRMSprop, clipped_step
from rl4sys.errors import NumericalError

AUTO: Literal["auto"] = "auto"


def _check_norm(value: Any) -> Any:
    if value != AUTO and (not isinstance(value, int | float) or not value > 0):
        raise ValueError("it should be a number above 0, or auto")
    return value


GradNorm: TypeAlias = Annotated[float | Literal["auto"], BeforeValidator(_check_norm)]
"""How long gradients may be: a number, or by what is usual for them."""

TIMES_USUAL, NORMS_REMEMBERED = 3.0, 100
"""With ``auto``: how many times the usual length a gradient may have, and over how many steps that is."""

_USUAL = "usual_norm"
"""Where an optimiser keeps what is usual, beside what it remembers of each parameter, so that it is saved with that."""


def make_adam(learnt: nn.Module | Sequence[Iterable[nn.Parameter]], lr: float, eps: float) -> CoreAdam:
    """For all parameters of a module, or for groups of them whose rates `set_lr` can tell apart."""
    groups = [learnt.parameters()] if isinstance(learnt, nn.Module) else learnt
    return CoreAdam([{"params": list(group)} for group in groups], lr=lr, eps=eps)


def make_rmsprop(learnt: nn.Module, lr: float) -> CoreRMSprop:
    """As the actor-critic papers have it: squares averaged over about a hundred steps, a small constant added."""
    return CoreRMSprop(learnt.parameters(), lr=lr, alpha=0.99, eps=1e-5, foreach=True)


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
    norm = take_step(optimizer, max_grad_norm) if math.isfinite(loss.item()) else math.inf
    if not math.isfinite(norm):
        raise NumericalError(_describe(module, losses, steps))
    return norm


def take_step(optimizer: torch.optim.Optimizer, max_grad_norm: GradNorm) -> float:
    """Along the gradients that are there, shortened; gives their length before. None is taken if that is not finite."""
    longest = _longest_usual(optimizer) if max_grad_norm == AUTO else max_grad_norm
    norm = clipped_step(optimizer, longest)
    if max_grad_norm == AUTO and math.isfinite(norm):
        _remember_norm(optimizer, min(norm, longest))
    return norm


def usual_norm(optimizer: torch.optim.Optimizer) -> tuple[float, int]:
    """A running mean of gradients' lengths after clipping, and of how many; without a bound until there was one."""
    usual = _remembered(optimizer).get(_USUAL)
    return (float(usual["mean"]), int(usual["count"])) if usual else (0.0, 0)


def remember_usual_norm(optimizer: torch.optim.Optimizer, mean: float, count: int) -> None:
    _remembered(optimizer)[_USUAL] = {
        "mean": torch.tensor(mean, dtype=torch.float64),
        "count": torch.tensor(count, dtype=torch.int64),
    }


def clipping_of(optimizer: torch.optim.Optimizer, max_grad_norm: GradNorm) -> tuple[float, float, float, float, float]:
    """As the core takes it: the longest, or how many times the usual over how many, that usual, and of how many."""
    longest = 0.0 if max_grad_norm == AUTO else float(max_grad_norm)
    return longest, TIMES_USUAL, float(NORMS_REMEMBERED), *usual_norm(optimizer)


def _longest_usual(optimizer: torch.optim.Optimizer) -> float:
    mean, _ = usual_norm(optimizer)
    return TIMES_USUAL * mean if mean > 0 else math.inf


def _remember_norm(optimizer: torch.optim.Optimizer, norm: float) -> None:
    """An outlier moves the mean little, and lasting growth is followed."""
    mean, count = usual_norm(optimizer)
    remember_usual_norm(optimizer, mean + (norm - mean) / min(count + 1, NORMS_REMEMBERED), count + 1)


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
