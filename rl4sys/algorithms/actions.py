"""Kinds of action spaces, and the check that an algorithm supports an action space."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from rl4sys.errors import ConfigError
from rl4sys.registry import ALGORITHMS
from rl4sys.spec import Discrete, MultiDiscrete, Space


class ActionKind(StrEnum):
    """Kind of action space; the values are the names used in docs and error messages.

    An algorithm class lists the kinds that it supports in ``actions``.
    """

    DISCRETE = "discrete"
    MULTI_DISCRETE = "MultiDiscrete"
    BOUNDED = "bounded continuous"
    UNBOUNDED = "unbounded continuous"


ALL_ACTIONS = tuple(ActionKind)


def action_kind(space: Space) -> ActionKind:
    if isinstance(space, Discrete):
        return ActionKind.DISCRETE
    if isinstance(space, MultiDiscrete):
        return ActionKind.MULTI_DISCRETE
    return ActionKind.BOUNDED if np.isfinite(space.bounds()).all() else ActionKind.UNBOUNDED


def supported_actions(algorithm: str) -> Sequence[ActionKind]:
    """Return the kinds of action spaces that an algorithm declares as supported.

    The result is empty if a plugin declares no kinds; such an algorithm accepts any action space.
    """
    kinds: Sequence[ActionKind] = getattr(ALGORITHMS.get(algorithm), "actions", ())
    return kinds


def check_actions(algorithm: str, space: Space) -> None:
    """Raise `ConfigError` if ``algorithm`` does not support the action space. The message lists suitable algorithms."""
    kind, supported = action_kind(space), supported_actions(algorithm)
    if not supported or kind in supported:
        return
    bound = "set finite low and high bounds for the action space, or " if kind == ActionKind.UNBOUNDED else ""
    fitting = [name for name in ALGORITHMS.names() if kind in supported_actions(name)]
    raise ConfigError(
        f"{algorithm} supports {_either(supported)} actions, but the action space is {kind}; "
        f"{bound}use {_either(fitting)}"
    )


def _either(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
