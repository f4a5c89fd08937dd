"""Recognition of own network classes whose forward only passes the observations to one plain nn.Sequential."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from rl4sys.networks.sequential import is_plain
from rl4sys.spec import MASK, Spec

_ROWS = 104_729
"""Number of rows that the stand-in of an observation reports; an unusual number, to recognize it in ``reshape``."""


@dataclass(frozen=True)
class Contained:
    """Name of the nn.Sequential in its network, and its input: all observations, flattened if ``is_flat``."""

    name: str
    is_flat: bool


def find_contained(network: nn.Module, spec: Spec) -> Contained | None:
    """Return the nn.Sequential that is the whole network; None if the network may compute anything else.

    ``forward`` is called with stand-ins for the observations. They support only the selection, the conversion to float,
    flattening and concatenation of observations; any other operation means that the network computes more.
    """
    children = dict(network.named_children())
    [name] = children if len(children) == 1 else [""]
    if not name or not is_plain(children[name]) or not _has_only_forward(network):
        return None
    found = {_input_of(network, name, spec, training=training) for training in (True, False)}
    seen = found.pop() if len(found) == 1 else None
    names = tuple(box for box in spec.observation if box != MASK)
    if seen is None or seen.names != names:
        return None
    return Contained(name, seen.is_flat)


def _has_only_forward(network: nn.Module) -> bool:
    """Return True if the classes of a network define no other methods, and it has no other weights and no hooks."""
    kinds = type(network).__mro__[: type(network).__mro__.index(nn.Module)]
    methods = {name for kind in kinds for name, value in vars(kind).items() if _is_code(value)}
    hooks = (network._forward_hooks, network._forward_pre_hooks, network._backward_hooks, network._backward_pre_hooks)
    return methods == {"__init__", "forward"} and not any((network._parameters, network._buffers, *hooks))


def _is_code(value: Any) -> bool:
    return (callable(value) and not isinstance(value, type)) or isinstance(value, property | classmethod | staticmethod)


def _input_of(network: nn.Module, name: str, spec: Spec, *, training: bool) -> _Value | None:
    """Return the input of the submodule ``name`` if ``forward`` returns its output unchanged, else None."""
    inputs: list[Any] = []
    output = object()

    def submodule(value: Any) -> object:
        inputs.append(value)
        return output

    called = copy.copy(network)
    vars(called).update(_modules={name: submodule}, training=training)
    before = dict(vars(called))
    values = {key: _Value((key,), len(box.shape) == 1) for key, box in spec.observation.items()}
    try:
        returned = type(network).forward(called, values)
    # The forward method belongs to the user and may raise any error for a stand-in.
    except Exception:
        return None
    unchanged = all(vars(called).get(key) is value for key, value in before.items()) and len(before) == len(
        vars(called)
    )
    one_call = len(inputs) == 1 and isinstance(inputs[0], _Value)
    return inputs[0] if returned is output and unchanged and one_call else None


@dataclass(frozen=True)
class _Value:
    """Stand-in for the named observations, concatenated. Supports only the operations of this class."""

    names: tuple[str, ...]
    is_flat: bool

    def float(self) -> _Value:
        return self

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> _Value:
        if (start_dim, end_dim) != (1, -1):
            raise NotImplementedError
        return replace(self, is_flat=True)

    def reshape(self, *shape: int) -> _Value:
        if shape != (_ROWS, -1):
            raise NotImplementedError
        return replace(self, is_flat=True)

    def __len__(self) -> int:
        return _ROWS

    def __bool__(self) -> bool:
        raise NotImplementedError

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> _Value:
        supported: dict[Callable[..., Any], Callable[..., _Value]] = {
            torch.cat: _concatenate,
            torch.flatten: cls.flatten,
        }
        if function not in supported:
            raise NotImplementedError
        return supported[function](*args, **(kwargs or {}))


def _concatenate(values: Sequence[_Value], dim: int = 0) -> _Value:
    if dim not in (1, -1) or not all(isinstance(value, _Value) and value.is_flat for value in values):
        raise NotImplementedError
    return _Value(tuple(name for value in values for name in value.names), is_flat=True)
