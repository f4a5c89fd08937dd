"""Leads to `rl4sys.examples.development`."""

from rl4sys.examples.development import *  # noqa: F403
