"""Global random state. rl4sys itself takes all randomness from ``experiment.seed``."""

from __future__ import annotations

import random

import numpy as np
import torch


def set_seed(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch, for code that uses them."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the global state is the purpose
    torch.manual_seed(seed)
