"""Lunar Lander learnt by DQN: the same system as `lunar_lander`, with another client config."""

from __future__ import annotations

import sys

from rl4sys.examples.lunar.lunar_lander import main

if __name__ == "__main__":
    sys.exit(main(config="luna_dqn_conf.json"))
