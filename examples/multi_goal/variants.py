"""Leads to `rl4sys.examples.multi_goal.variants`."""

from rl4sys.examples.multi_goal.variants import *  # noqa: F403
