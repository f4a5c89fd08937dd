"""Rollouts of a trained policy: the command `rl4sys simulate` under softlearning's name.

    python -m examples.development.simulate_policy CHECKPOINT --num-rollouts 1 --render-kwargs '{"mode": "human"}'

CHECKPOINT is a run directory, a directory under its `checkpoints/`, or a policy file.
"""

from __future__ import annotations

import sys

from rl4sys.cli.main import main

if __name__ == "__main__":
    main(["simulate", *sys.argv[1:]])
