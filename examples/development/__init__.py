"""Alias of `rl4sys.examples.development`, so that commands of earlier documents work."""

from rl4sys.examples.development import *  # noqa: F403
