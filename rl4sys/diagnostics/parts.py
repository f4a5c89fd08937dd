"""Search for the networks and optimizers in the attributes of an algorithm, and names for their layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from rl4sys.algorithms.base import Algorithm, AlgorithmSetup

_MAX_DEPTH = 4
_LEAF_TYPES = (str, bytes, int, float, torch.Tensor, type, AlgorithmSetup)
"""Types of attributes that are not searched. The setup refers to networks under other names than the algorithm."""


@dataclass(frozen=True)
class Parts:
    """Networks and optimizers of an algorithm by attribute path."""

    networks: dict[str, nn.Module] = field(default_factory=dict)
    optimizers: dict[str, torch.optim.Optimizer] = field(default_factory=dict)

    def optimized_parameters(self) -> list[nn.Parameter]:
        """Return all parameters that an optimizer updates."""
        return [
            p for optimizer in self.optimizers.values() for group in optimizer.param_groups for p in group["params"]
        ]

    def layers(self) -> dict[nn.Module, str]:
        """Return all layers with their names. A layer is a module with parameters of its own or without children."""
        found: dict[nn.Module, str] = {}
        for root, network in self.networks.items():
            for name, module in network.named_modules():
                if _is_layer(module):
                    found.setdefault(module, _public_name(f"{root}.{name}" if name else root))
        return found

    def weights(self) -> dict[nn.Parameter, str]:
        """Return all parameters of the networks with their names. A shared parameter has one name."""
        found: dict[nn.Parameter, str] = {}
        for root, network in self.networks.items():
            for name, parameter in network.named_parameters():
                found.setdefault(parameter, _public_name(f"{root}.{name}"))
        return found


def find_parts(algorithm: Algorithm) -> Parts:
    """Search the attributes of an algorithm, up to four levels deep, for networks and optimizers."""
    parts = Parts()
    _walk(algorithm, "", parts, set(), _MAX_DEPTH)
    return parts


def describe(module: nn.Module) -> str:
    """Return type and size of a layer, such as ``Linear, 4 to 64``."""
    if isinstance(module, nn.Linear):
        return f"Linear, {module.in_features} to {module.out_features}"
    if isinstance(module, nn.Conv2d):
        return f"Conv2d, {module.in_channels} to {module.out_channels} channels"
    return type(module).__name__


def _walk(value: Any, path: str, parts: Parts, seen: set[int], levels: int) -> None:
    if id(value) in seen or isinstance(value, _LEAF_TYPES):
        return
    seen.add(id(value))
    if isinstance(value, nn.Module):
        parts.networks[path] = value
    elif isinstance(value, torch.optim.Optimizer):
        parts.optimizers[path] = value
    elif levels:
        for name, inner in _children(value):
            _walk(inner, f"{path}.{name}" if path else name, parts, seen, levels - 1)


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(index), item) for index, item in enumerate(value))
    else:
        yield from ((name.strip("_"), item) for name, item in getattr(value, "__dict__", {}).items())


def _is_layer(module: nn.Module) -> bool:
    own = next(module.parameters(recurse=False), None) is not None
    return own or next(module.children(), None) is None


def _public_name(path: str) -> str:
    """Remove leading and trailing underscores from each attribute name in a dotted path."""
    return ".".join(part.strip("_") for part in path.split("."))
