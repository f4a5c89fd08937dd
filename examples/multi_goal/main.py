"""Alias of `rl4sys.examples.multi_goal.main`, so that commands of earlier documents work."""

from rl4sys.examples.multi_goal.main import *  # noqa: F403
from rl4sys.examples.multi_goal.main import main

if __name__ == "__main__":
    main()
