"""Leads to `rl4sys.examples.multi_goal`."""

from rl4sys.examples.multi_goal import *  # noqa: F403
