"""Fallback actions: legal actions for the host program if the policy cannot decide."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, TypeAlias

import numpy as np

from rl4sys.client.spaces import Spaces
from rl4sys.errors import ConfigError
from rl4sys.spec import Array, Box, Discrete, DiscreteSpace, first_allowed, in_range, is_allowed

FallbackFunction: TypeAlias = Callable[[Any, Any], Any]
"""Function of the host program that maps an observation and an action mask to an action."""


class Fallback:
    """Selects a legal action: the result of the user's function, the action in the config, or a default.

    The default is the first legal action, or zeros clipped to the bounds for a Box.
    """

    def __init__(self, spaces: Spaces, action: Any, function: FallbackFunction | None) -> None:
        self._spaces, self._space, self._function = spaces, spaces.spec.action, function
        self._action = action
        if action is not None:
            try:
                self._action = self._check(action, None)
            except (TypeError, ValueError) as problem:
                raise ConfigError(f"fallback_action is {action!r:.80}; {problem}") from problem

    def choose(self, observation: Any, mask: Array | None, reason: str) -> tuple[Any, str]:
        """Return a legal action and ``reason``, extended by the error of a failed fallback function."""
        if self._function is not None:
            try:
                return self._check(self._function(observation, mask), mask), reason
            except Exception as problem:
                # User code may raise anything; the host still needs an action.
                reason = f"{reason}; the fallback function failed: {problem!r:.200}"
        if self._action is not None and self._is_legal(self._action, mask):
            return self._copy(self._action), reason
        return self._default(mask), reason

    def _check(self, action: Any, mask: Array | None) -> Any:
        if isinstance(self._space, Box):
            return self._check_box(self._space, action)
        indices = self._to_indices(self._space, action)
        if not in_range(self._space, indices[None]):
            raise ValueError(self._expected(self._space))
        if not self._is_legal(action, mask):
            raise ValueError(f"the action mask forbids the action {action}")
        return self._to_host(indices)

    def _to_indices(self, space: DiscreteSpace, action: Any) -> Array:
        """Convert an action of the host program to action indices, counted from 0."""
        if isinstance(space, Discrete):
            return np.asarray(index(action) - self._spaces.start)
        given = np.asarray(action)
        if given.dtype.kind not in "iu" or given.size != space.size:
            raise ValueError(self._expected(space))
        return (given.reshape(np.shape(self._spaces.start) or space.shape) - self._spaces.start).reshape(-1)

    def _expected(self, space: DiscreteSpace) -> str:
        first, last = self._to_host(np.zeros(space.shape, np.int64)), self._to_host(np.array(space.choices) - 1)
        if isinstance(space, Discrete):
            return f"expected a discrete action from {first} to {last}"
        return f"expected one discrete action per dimension, from {first.tolist()} to {last.tolist()}"

    def _check_box(self, box: Box, action: Any) -> Array:
        numbers = np.array(action, np.float32)
        low, high = box.bounds()
        if numbers.shape != box.shape or not ((numbers >= low) & (numbers <= high)).all():
            raise ValueError(f"expected an array of shape {box.shape} within the action's bounds")
        return numbers

    def _is_legal(self, action: Any, mask: Array | None) -> bool:
        if mask is None or isinstance(self._space, Box):
            return True
        return is_allowed(self._space, self._to_indices(self._space, action)[None], mask[None])

    def _default(self, mask: Array | None) -> Any:
        if isinstance(self._space, Box):
            return self._space.legal(np.zeros(self._space.shape, np.float32))
        first = np.zeros(self._space.shape, np.int64) if mask is None else first_allowed(self._space, mask)
        return self._to_host(first)

    def _to_host(self, indices: Array) -> Any:
        given = self._spaces.decode_action(indices)
        return int(given) if isinstance(self._space, Discrete) else given

    @staticmethod
    def _copy(action: Any) -> Any:
        return action.copy() if isinstance(action, np.ndarray) else action
