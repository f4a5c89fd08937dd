"""Alias of `rl4sys.examples.development.main_test`, so that commands of earlier documents work."""

from rl4sys.examples.development.main_test import *  # noqa: F403
