"""Evaluate a trained policy: `python scripts/evaluate.py …` runs `rl4sys evaluate …`."""

import sys

from rl4sys.cli.main import main

if __name__ == "__main__":
    main(["evaluate", *sys.argv[1:]])
