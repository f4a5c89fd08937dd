"""Which kinds of actions there are, which of them an algorithm takes, and which algorithms take a kind."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from rl4sys.errors import ConfigError
from rl4sys.registry import ALGORITHMS
from rl4sys.spec import Discrete, MultiDiscrete, Space


class Actions(StrEnum):
    """As the docs and errors name them. An algorithm's class has those it takes as ``actions``."""

    CHOICES = "choices"
    SEVERAL = "several choices at once"
    BOUNDED = "numbers within bounds"
    UNBOUNDED = "numbers without bounds"


ALL_ACTIONS = tuple(Actions)


def kind_of(space: Space) -> Actions:
    if isinstance(space, Discrete):
        return Actions.CHOICES
    if isinstance(space, MultiDiscrete):
        return Actions.SEVERAL
    return Actions.BOUNDED if np.isfinite(space.bounds()).all() else Actions.UNBOUNDED


def takes(algorithm: str) -> Sequence[Actions]:
    """The kinds that it says it takes; none where one of the user's own says nothing, and is tried with any."""
    kinds: Sequence[Actions] = getattr(ALGORITHMS.get(algorithm), "actions", ())
    return kinds


def check_actions(algorithm: str, space: Space) -> None:
    """`ConfigError`, with what would do instead, if the algorithm does not take such actions."""
    kind, taken = kind_of(space), takes(algorithm)
    if not taken or kind in taken:
        return
    bound = "give the action space finite low and high, or " if kind == Actions.UNBOUNDED else ""
    fitting = [name for name in ALGORITHMS.names() if kind in takes(name)]
    raise ConfigError(
        f"{algorithm} takes actions that are {_either(taken)}, and these are {kind}; {bound}use {_either(fitting)}"
    )


def _either(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
