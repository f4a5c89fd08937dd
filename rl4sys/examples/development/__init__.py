"""Soft actor-critic and soft Q-learning on continuous control, described by variants as in softlearning."""

from __future__ import annotations

from .main import ExperimentRunner
from .variants import get_variant_spec

__all__ = ["ExperimentRunner", "get_variant_spec"]
