"""Fully connected layers in the native core: one call for the forward and one for the backward pass."""

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
"""Activations whose gradient the core implements."""


@runtime_checkable
class SupportsNative(Protocol):
    """Network that the native core may be able to compute."""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def compute_natively(self) -> bool:
        """Switch to the native core; return False if the core cannot compute this network."""


def compute_natively(module: nn.Module) -> bool:
    """Switch all supported networks of a module to the native core; return False if a network is not supported.

    The core does not provide second derivatives.
    """
    computed = [part for part in module.modules() if isinstance(part, SupportsNative) and part.compute_natively()]
    known = {id(parameter) for network in computed for parameter in network.parameters()}
    # Scalar and vector parameters, such as log_std, need not belong to a network.
    return all(id(parameter) in known for parameter in module.parameters() if parameter.dim() > 1)


_BLOCK_ROWS = 1024
"""Number of rows per block in forward passes without gradients."""

_TAPES: list[Tape] = []
"""Unused tapes (activations for the backward pass), kept to reuse their RAM.

The tape that was used last is reused first, because it may still be in the CPU cache.
"""


class _BorrowedTape:
    """Tape taken from `_TAPES` and returned when this object is deleted; until then, backward may run repeatedly."""

    def __init__(self) -> None:
        from rl4sys._core import Tape

        try:
            self.tape = _TAPES.pop()
        except IndexError:
            self.tape = Tape()

    def __del__(self) -> None:
        _TAPES.append(self.tape)


class CoreLayers:
    """Hidden layers (linear, optional layer norm, activation) and a linear output layer in the native core."""

    def __init__(self, widths: Sequence[int], activation: str, norm: nn.LayerNorm | None) -> None:
        from rl4sys._core import Layers

        self.outputs = widths[-1]
        self.core = Layers(list(widths), activation, norm is not None, norm.eps if norm is not None else 0.0)

    @staticmethod
    def is_supported(activation: str) -> bool:
        return NATIVE and activation in ACTIVATIONS

    def __call__(self, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """Run the forward pass. ``weights`` lists per layer: weight, bias, and scale and shift of the layer norm."""
        if torch.is_grad_enabled():
            given: Tensor = _LayersFunction.apply(self, x, *weights)  # type: ignore[no-untyped-call]
            return given
        borrowed = _BorrowedTape()
        # Without a backward pass only one block of activations is needed, and a block fits into the CPU cache.
        blocks = [self.forward(rows, weights, borrowed.tape) for rows in torch.split(x, _BLOCK_ROWS)]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks)

    def forward(self, x: Tensor, weights: Sequence[Tensor], tape: Tape) -> Tensor:
        output = x.new_empty((len(x), self.outputs))
        self.core.forward(len(x), x.data_ptr(), addresses(weights), tape, output.data_ptr())
        return output


@runtime_checkable
class HasCoreLayers(Protocol):
    """Network that consists of core layers only."""

    def core_layers(self) -> tuple[CoreLayers, list[nn.Parameter]] | None:
        """Return the layers and their weights in order; None if torch must compute the network."""

    def row(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Return the input of the first layer."""


def addresses(tensors: Iterable[Tensor]) -> list[int]:
    """Return the data addresses of the tensors; they are valid while the tensors exist."""
    return [tensor.data_ptr() for tensor in tensors]


class _LayersFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layers: CoreLayers, x: Tensor, *weights: Tensor) -> Tensor:
        ctx.layers, ctx.borrowed = layers, _BorrowedTape()
        ctx.save_for_backward(x, *weights)
        return layers.forward(x, weights, ctx.borrowed.tape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        _, x_wanted, *weights_wanted = ctx.needs_input_grad
        gradients = [torch.empty_like(weight) for weight in weights] if any(weights_wanted) else []
        of_x = torch.empty_like(x) if x_wanted else None
        # Keep a reference, because the core has only the address of the gradient.
        gradient = gradient.contiguous()
        ctx.layers.core.backward(
            x.data_ptr(),
            addresses(weights),
            ctx.borrowed.tape,
            gradient.data_ptr(),
            addresses(gradients),
            0 if of_x is None else of_x.data_ptr(),
        )
        nothing: list[None] = [None] * len(weights)
        return None, of_x, *(gradients or nothing)
