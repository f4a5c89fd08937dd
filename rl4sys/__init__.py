"""RL4Sys: reinforcement learning inside running systems, and local training. Start at README.md."""

from rl4sys.version import __version__ as __version__
