"""Alias of `rl4sys.examples.development.variants`, so that commands of earlier documents work."""

from rl4sys.examples.development.variants import *  # noqa: F403
