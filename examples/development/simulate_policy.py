"""Alias of `rl4sys.examples.development.simulate_policy`, so that commands of earlier documents work."""

import sys

from rl4sys.cli.main import main

if __name__ == "__main__":
    main(["simulate", *sys.argv[1:]])
