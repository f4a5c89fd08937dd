"""Train many combinations of settings: `python scripts/sweep.py …` runs `rl4sys sweep …`."""

import sys

from rl4sys.cli.main import main

if __name__ == "__main__":
    main(["sweep", *sys.argv[1:]])
