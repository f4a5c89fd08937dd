"""Fully connected layers in the native core: one call for what all of them give, and one for all gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rl4sys.policy.draws import NATIVE

if TYPE_CHECKING:
    from rl4sys._core import Tape

ACTIVATIONS = ("tanh", "relu", "elu")
"""Those whose gradient the core knows."""


@runtime_checkable
class Native(Protocol):
    """A network that the native core may be able to compute."""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def compute_natively(self) -> bool:
        """From now on; false if the core cannot."""


def compute_natively(module: nn.Module) -> bool:
    """Have every network within a module that the core knows computed by it; false if there is another one.

    Gradients of gradients are not to be had any more.
    """
    computed = [part for part in module.modules() if isinstance(part, Native) and part.compute_natively()]
    known = {id(parameter) for network in computed for parameter in network.parameters()}
    # A single number, or one for each element of an action, needs no network to compute it.
    return all(id(parameter) in known for parameter in module.parameters() if parameter.dim() > 1)


_TAPES: list[Tape] = []
"""Those not in use, for the room they have: the one used last is taken first, while it is in the caches."""


class _LentTape:
    """One of them, for as long as this lives: a pass may be gone through backwards more than once."""

    def __init__(self) -> None:
        from rl4sys._core import Tape

        try:
            self.tape = _TAPES.pop()
        except IndexError:
            self.tape = Tape()

    def __del__(self) -> None:
        _TAPES.append(self.tape)


class CoreLayers:
    """Hidden layers, each linear, then normalised if wanted, then activated; and a last one that is linear alone."""

    def __init__(self, widths: Sequence[int], activation: str, norm: nn.LayerNorm | None) -> None:
        from rl4sys._core import Layers

        self.outputs = widths[-1]
        self.core = Layers(list(widths), activation, norm is not None, norm.eps if norm is not None else 0.0)

    @staticmethod
    def possible(activation: str) -> bool:
        return NATIVE and activation in ACTIVATIONS

    def __call__(self, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """``weights`` are, of each layer, weight and bias, then scale and shift where it is normalised."""
        if torch.is_grad_enabled():
            given: Tensor = _Pass.apply(self, x, *weights)  # type: ignore[no-untyped-call]
            return given
        lent = _LentTape()
        return self.forward(x, weights, lent.tape)

    def forward(self, x: Tensor, weights: Sequence[Tensor], tape: Tape) -> Tensor:
        output = x.new_empty((len(x), self.outputs))
        self.core.forward(len(x), x.data_ptr(), addresses(weights), tape, output.data_ptr())
        return output


@runtime_checkable
class InCore(Protocol):
    """A network that the core can be given as a whole: layers, and parameters that are their weights."""

    def in_core(self) -> tuple[CoreLayers, list[nn.Parameter]] | None:
        """Its layers and their weights, in their order; None while torch has to compute it, or others look into it."""

    def row(self, observation: Mapping[str, Tensor]) -> Tensor:
        """What the first layer is given."""


def addresses(tensors: Iterable[Tensor]) -> list[int]:
    """Where the core finds them, while they live."""
    return [tensor.data_ptr() for tensor in tensors]


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layers: CoreLayers, x: Tensor, *weights: Tensor) -> Tensor:
        ctx.layers, ctx.lent = layers, _LentTape()
        ctx.save_for_backward(x, *weights)
        return layers.forward(x, weights, ctx.lent.tape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        _, x_wanted, *weights_wanted = ctx.needs_input_grad
        gradients = [torch.empty_like(weight) for weight in weights] if any(weights_wanted) else []
        of_x = torch.empty_like(x) if x_wanted else None
        # Held here, since the core knows but its address.
        gradient = gradient.contiguous()
        ctx.layers.core.backward(
            x.data_ptr(),
            addresses(weights),
            ctx.lent.tape,
            gradient.data_ptr(),
            addresses(gradients),
            0 if of_x is None else of_x.data_ptr(),
        )
        nothing: list[None] = [None] * len(weights)
        return None, of_x, *(gradients or nothing)
