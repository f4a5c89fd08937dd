"""Leads to `rl4sys.examples.development.variants`."""

from rl4sys.examples.development.variants import *  # noqa: F403
