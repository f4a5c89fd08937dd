"""Where torch computes."""

from __future__ import annotations

import torch


def available_device(wanted: str) -> str:
    """``wanted`` if this machine has it, else cpu; ``auto`` takes the best there is."""
    kind = wanted.partition(":")[0]
    if kind in ("auto", "cuda") and torch.cuda.is_available():
        return "cuda" if kind == "auto" else wanted
    if kind == "mps" and torch.backends.mps.is_available():
        return wanted
    return "cpu"


def use_threads(count: int) -> None:
    """How many threads torch computes with, in the whole process: for hosts, never for algorithms."""
    torch.set_num_threads(count)


def instructions() -> str:
    """The processor's vector instructions that torch uses; sums come in another order with others."""
    return str(torch.backends.cpu.get_cpu_capability())
