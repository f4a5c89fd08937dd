"""The networks and optimisers of any algorithm, found by looking through it, and their layers by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from rl4sys.algorithms.base import Algorithm

_DEEPEST = 4
_OURS_ALONE = (str, bytes, int, float, torch.Tensor, type)


@dataclass(frozen=True)
class Parts:
    """What an algorithm learns with, each by the attributes that lead to it."""

    networks: dict[str, nn.Module] = field(default_factory=dict)
    optimizers: dict[str, torch.optim.Optimizer] = field(default_factory=dict)

    def learnt(self) -> list[nn.Parameter]:
        """The weights that an optimiser moves."""
        return [
            p for optimizer in self.optimizers.values() for group in optimizer.param_groups for p in group["params"]
        ]

    def layers(self) -> dict[nn.Module, str]:
        """Every module that computes by itself, once each: those with weights of their own, or without parts."""
        found: dict[nn.Module, str] = {}
        for root, network in self.networks.items():
            for name, module in network.named_modules():
                if _computes(module):
                    found.setdefault(module, _plain(f"{root}.{name}" if name else root))
        return found

    def weights(self) -> dict[nn.Parameter, str]:
        """Every parameter once, by its name."""
        found: dict[nn.Parameter, str] = {}
        for root, network in self.networks.items():
            for name, parameter in network.named_parameters():
                found.setdefault(parameter, _plain(f"{root}.{name}"))
        return found


def find_parts(algorithm: Algorithm) -> Parts:
    """An algorithm need not help: its attributes are walked, those of its own objects too, some levels deep."""
    parts = Parts()
    _walk(algorithm, "", parts, set(), _DEEPEST)
    return parts


def describe(module: nn.Module) -> str:
    """What kind of layer it is, in a word or two."""
    if isinstance(module, nn.Linear):
        return f"Linear, {module.in_features} to {module.out_features}"
    if isinstance(module, nn.Conv2d):
        return f"Conv2d, {module.in_channels} to {module.out_channels} channels"
    return type(module).__name__


def _walk(thing: Any, path: str, parts: Parts, seen: set[int], levels: int) -> None:
    if id(thing) in seen or isinstance(thing, _OURS_ALONE):
        return
    seen.add(id(thing))
    if isinstance(thing, nn.Module):
        parts.networks[path] = thing
    elif isinstance(thing, torch.optim.Optimizer):
        parts.optimizers[path] = thing
    elif levels:
        for name, inner in _inside(thing):
            _walk(inner, f"{path}.{name}" if path else name, parts, seen, levels - 1)


def _inside(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, Mapping):
        yield from ((str(key), value) for key, value in thing.items())
    elif isinstance(thing, list | tuple):
        yield from ((str(index), value) for index, value in enumerate(thing))
    else:
        yield from ((name.strip("_"), value) for name, value in getattr(thing, "__dict__", {}).items())


def _computes(module: nn.Module) -> bool:
    own = next(module.parameters(recurse=False), None) is not None
    return own or next(module.children(), None) is None


def _plain(path: str) -> str:
    """``hidden._nonlinearity`` is an attribute of ours; its underscore tells a reader nothing."""
    return ".".join(part.strip("_") for part in path.split("."))
