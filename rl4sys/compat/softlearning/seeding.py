"""Seeding of global random generators. RL4Sys itself does not use them; its seed is ``experiment.seed``."""

from __future__ import annotations

import random

import numpy as np
import torch


def set_seed(seed: int) -> None:
    """Seed the global random generators of Python, numpy and torch, for code that uses these generators."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the global state is the purpose
    torch.manual_seed(seed)
