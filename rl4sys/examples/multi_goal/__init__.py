"""Soft Q-learning on a plane with four equally good goals: the policy learns to reach all of them."""

from __future__ import annotations

from .variants import get_variant_spec

__all__ = ["get_variant_spec"]
