"""Version of the package, read at build time by both of its distributions, `rl4sys` and `rl4sys-client`."""

__version__ = "0.1.0"
