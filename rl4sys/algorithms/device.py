"""Torch device, number of torch threads and CPU instruction set."""

from __future__ import annotations

import torch


def available_device(wanted: str) -> str:
    """Return the device ``wanted`` if this machine has it, else cpu; ``auto`` selects cuda if available."""
    kind = wanted.partition(":")[0]
    if kind in ("auto", "cuda") and torch.cuda.is_available():
        return "cuda" if kind == "auto" else wanted
    if kind == "mps" and torch.backends.mps.is_available():
        return wanted
    return "cpu"


def num_gpus() -> int:
    """Return the number of CUDA devices of this machine."""
    return torch.cuda.device_count()


def use_threads(count: int) -> None:
    """Set the number of torch threads of the whole process. Only hosts call this, never algorithms."""
    torch.set_num_threads(count)


def instructions() -> str:
    """Return the CPU vector instruction set that torch uses; the rounding of sums depends on this set."""
    return str(torch.backends.cpu.get_cpu_capability())
