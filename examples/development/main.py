"""Leads to `rl4sys.examples.development.main`."""

from rl4sys.examples.development.main import *  # noqa: F403
from rl4sys.examples.development.main import main

if __name__ == "__main__":
    main()
