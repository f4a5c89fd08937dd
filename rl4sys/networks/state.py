"""State of torch modules and optimizers as plain trees of arrays."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rl4sys.networks.base import to_array
from rl4sys.spec import Array, Columns, State


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
