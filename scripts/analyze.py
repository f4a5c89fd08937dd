"""Analyze runs: `python scripts/analyze.py …` runs `rl4sys analyze …`."""

import sys

from rl4sys.cli.main import main

if __name__ == "__main__":
    main(["analyze", *sys.argv[1:]])
