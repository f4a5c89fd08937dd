"""Alias of `rl4sys.examples.multi_goal`, so that commands of earlier documents work."""

from rl4sys.examples.multi_goal import *  # noqa: F403
