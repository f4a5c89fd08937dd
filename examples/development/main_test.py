"""Leads to `rl4sys.examples.development.main_test`."""

from rl4sys.examples.development.main_test import *  # noqa: F403
