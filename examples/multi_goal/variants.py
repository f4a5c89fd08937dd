"""Alias of `rl4sys.examples.multi_goal.variants`, so that commands of earlier documents work."""

from rl4sys.examples.multi_goal.variants import *  # noqa: F403
