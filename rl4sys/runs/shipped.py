"""Shipped settings of algorithms, for experiments without a config file."""

from __future__ import annotations

from rl4sys.config import Settings, load, shipped_names

_BASE_ALGORITHM = {"rpo": "ppo", "c51": "dqn", "qr_dqn": "dqn", "rainbow": "dqn"}
"""Algorithms without shipped settings, mapped to the algorithm whose shipped settings they use."""


def algorithm_file(algorithm: str, variant: str = "") -> str | None:
    """Return the shipped file for a variant of an algorithm, or else for the algorithm; None if there is neither."""
    known = shipped_names("algorithms")
    wanted = (f"{algorithm}_{variant}", algorithm, _BASE_ALGORITHM.get(algorithm, ""))
    return next((f"algorithms/{name}" for name in wanted if name in known), None)


def algorithm_defaults(algorithm: str) -> Settings:
    """Return the shipped settings for an algorithm, with its name; only the name if no settings are shipped."""
    file = algorithm_file(algorithm)
    settings = {} if file is None else load(file)
    return {**settings, "algorithm": {**settings.get("algorithm", {}), "name": algorithm}}
