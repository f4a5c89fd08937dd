"""Leads to `rl4sys.examples.multi_goal.main`."""

from rl4sys.examples.multi_goal.main import *  # noqa: F403
from rl4sys.examples.multi_goal.main import main

if __name__ == "__main__":
    main()
