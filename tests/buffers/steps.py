"""Trajectories of numbered steps for buffer tests, and functions that read batches."""

from rl4sys.testing.steps import batches, drain
from rl4sys.testing.steps import numbered_trajectory as trajectory

__all__ = ["batches", "drain", "trajectory"]
