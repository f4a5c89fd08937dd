"""State of torch modules and optimizers as plain trees of arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import nn

from rl4sys.networks.base import to_array
from rl4sys.spec import Array, Columns, State

Part: TypeAlias = nn.Module | torch.optim.Optimizer
"""Part of an algorithm that changes during training."""


def parts_state(**parts: Part) -> State:
    """Return the state of the given networks and optimizers by argument name."""
    return {
        name: module_state(part) if isinstance(part, nn.Module) else optimizer_state(part)
        for name, part in parts.items()
    }


def restore_parts(state: State, **parts: Part) -> None:
    """Restore networks and optimizers from a result of `parts_state`, called with the same argument names."""
    for name, part in parts.items():
        if isinstance(part, nn.Module):
            restore_module(part, state[name])
        else:
            restore_optimizer(part, state[name])


def module_state(module: nn.Module) -> dict[str, Array]:
    return {name: to_array(tensor) for name, tensor in module.state_dict().items()}


def restore_module(module: nn.Module, state: Columns) -> None:
    module.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in state.items()})


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Array]]:
    """Return the state of an optimizer as arrays: per-parameter state by parameter index, shared state by name."""
    entries = optimizer.state_dict()["state"]
    return {str(i): {name: to_array(tensor) for name, tensor in entry.items()} for i, entry in entries.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, state: State) -> None:
    entries: dict[int | str, dict[str, Any]] = {
        int(i) if i.isdecimal() else i: {name: torch.from_numpy(array.copy()) for name, array in entry.items()}
        for i, entry in state.items()
    }
    optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})
