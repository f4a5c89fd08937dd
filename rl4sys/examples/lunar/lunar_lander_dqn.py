"""Lunar Lander trained with DQN: the example `lunar_lander` with another client config."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    # Remove the folder of this script from sys.path, as `lunar_lander` does.
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).resolve().parent)]

from rl4sys.examples.lunar import lunar_lander

__path__ = lunar_lander.__path__


def main(arguments: Sequence[str] | None = None) -> int:
    return lunar_lander.main(arguments, config="luna_dqn_conf.json")


if __name__ == "__main__":
    sys.exit(main())
