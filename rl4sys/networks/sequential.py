"""Plain torch networks (nn.Sequential with its standard forward), and their form in the native core."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from rl4sys.networks.native import CoreLayers

ACTIVATION_NAMES: dict[type[nn.Module], str] = {
    nn.Tanh: "tanh",
    nn.ReLU: "relu",
    nn.ELU: "elu",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
}


def is_plain(network: nn.Module) -> bool:
    """Return True for an nn.Sequential with its standard forward."""
    return isinstance(network, nn.Sequential) and type(network).forward is nn.Sequential.forward


def is_standard_activation(module: nn.Module) -> bool:
    """Return True for a known activation with the options that policy programs and the core implement."""
    return (
        type(module) in ACTIVATION_NAMES
        and getattr(module, "alpha", 1.0) == 1.0
        and getattr(module, "approximate", "none") == "none"
    )


def is_row_flatten(module: nn.Module) -> bool:
    """Return True for an nn.Flatten that flattens each row to a vector."""
    return type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)


def core_form(network: nn.Module, shape: Sequence[int]) -> tuple[CoreLayers, list[nn.Parameter]] | None:
    """Return a plain network as layers of the native core, with their weights; None if torch must compute it.

    ``shape`` is the shape of one row of the input. The core computes Linear layers with bias. All hidden layers have
    the same activation, and either all or none of them have a LayerNorm before the activation.
    """
    modules = list(_in_order(network))
    if len(shape) != 1 and not (modules and is_row_flatten(modules[0])):
        return None
    layers: list[Any] = [module for module in modules if not is_row_flatten(module)]
    *hidden, output = layers or [network]
    step = 3 if any(type(module) is nn.LayerNorm for module in hidden) else 2
    linears = [*hidden[::step], output]
    norms, activations = hidden[1::3] if step == 3 else [], hidden[step - 1 :: step]
    if len(hidden) % step or not (_are_linear(linears) and _are_norms(norms, linears) and _are_equal(activations)):
        return None
    name = ACTIVATION_NAMES[type(activations[0])] if activations else "tanh"
    weights = _weights(linears, norms)
    if weights is None or not CoreLayers.is_supported(name):
        return None
    widths = [linears[0].in_features, *(linear.out_features for linear in linears)]
    return CoreLayers(widths, name, norms[0] if norms else None), weights


def _in_order(network: Any) -> Iterator[nn.Module]:
    """Yield the modules of nested plain networks in order, except nn.Identity."""
    if is_plain(network):
        # Unlike children(), this yields a module again if the network contains it twice.
        for child in network._modules.values():
            yield from _in_order(child)
    elif type(network) is not nn.Identity:
        yield network


def _are_linear(modules: Sequence[Any]) -> bool:
    return all(type(module) is nn.Linear for module in modules) and all(
        before.out_features == after.in_features for before, after in pairwise(modules)
    )


def _are_norms(norms: Sequence[Any], linears: Sequence[Any]) -> bool:
    """Return True if each module normalizes the outputs of its linear layer, all with the same epsilon."""
    return all(
        type(norm) is nn.LayerNorm and norm.normalized_shape == (linear.out_features,) and norm.eps == norms[0].eps
        for norm, linear in zip(norms, linears, strict=False)
    )


def _are_equal(activations: Sequence[nn.Module]) -> bool:
    return all(is_standard_activation(one) and type(one) is type(activations[0]) for one in activations)


def _weights(linears: Sequence[Any], norms: Sequence[Any]) -> list[nn.Parameter] | None:
    """Return the weights in the order of the core; None if one is missing, computed, shared or not float32."""
    found = []
    for index, linear in enumerate(linears):
        found += [linear.weight, linear.bias]
        if index < len(norms):
            found += [norms[index].weight, norms[index].bias]
    usable = all(isinstance(weight, nn.Parameter) and weight.dtype == torch.float32 for weight in found)
    return found if usable and len({id(weight) for weight in found}) == len(found) else None
