"""Train a policy: `python scripts/train.py …` runs `rl4sys train …`."""

import sys

from rl4sys.cli.main import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
