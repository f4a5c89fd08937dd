"""Leads to `rl4sys.examples.development.simulate_policy`."""

import sys

from rl4sys.cli.main import main

if __name__ == "__main__":
    main(["simulate", *sys.argv[1:]])
