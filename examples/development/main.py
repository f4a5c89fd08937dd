"""Alias of `rl4sys.examples.development.main`, so that commands of earlier documents work."""

from rl4sys.examples.development.main import *  # noqa: F403
from rl4sys.examples.development.main import main

if __name__ == "__main__":
    main()
