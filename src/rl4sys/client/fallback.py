"""What is done where the policy cannot decide: always something legal."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, TypeAlias

import numpy as np

from rl4sys.client.spaces import Spaces
from rl4sys.errors import ConfigError
from rl4sys.spec import Array, Box, Choices, Discrete, first_permitted, in_range, permitted

FallbackFunction: TypeAlias = Callable[[Any, Any], Any]
"""Observation and mask → action."""


class Fallback:
    """The user's action or function where its answer is legal, else the first legal choices or zeros within bounds."""

    def __init__(self, spaces: Spaces, action: Any, function: FallbackFunction | None) -> None:
        self._spaces, self._space, self._function = spaces, spaces.spec.action, function
        self._action = action
        if action is not None:
            try:
                self._action = self._checked(action, None)
            except (TypeError, ValueError) as problem:
                raise ConfigError(f"fallback_action is {action!r:.80}; {problem}") from problem

    def choose(self, observation: Any, mask: Array | None, reason: str) -> tuple[Any, str]:
        """An action, and the reason, with what came of the user's own fallback."""
        if self._function is not None:
            try:
                return self._checked(self._function(observation, mask), mask), reason
            except Exception as problem:
                # The user's code: whatever it does, the system gets an action.
                reason = f"{reason}; and the fallback function failed: {problem!r:.200}"
        if self._action is not None and self._is_legal(self._action, mask):
            return self._copied(self._action), reason
        return self._otherwise(mask), reason

    def _checked(self, action: Any, mask: Array | None) -> Any:
        if isinstance(self._space, Box):
            return self._checked_numbers(self._space, action)
        chosen = self._chosen(self._space, action)
        if not in_range(self._space, chosen[None]):
            raise ValueError(self._expected(self._space))
        if not self._is_legal(action, mask):
            raise ValueError(f"{action} is not legal now")
        return self._given(chosen)

    def _chosen(self, space: Choices, action: Any) -> Array:
        """Numbered from 0, whatever the system calls them."""
        if isinstance(space, Discrete):
            return np.asarray(index(action) - self._spaces.start)
        given = np.asarray(action)
        if given.dtype.kind not in "iu" or given.size != space.size:
            raise ValueError(self._expected(space))
        return (given.reshape(np.shape(self._spaces.start) or space.shape) - self._spaces.start).reshape(-1)

    def _expected(self, space: Choices) -> str:
        first, last = self._given(np.zeros(space.shape, np.int64)), self._given(np.array(space.choices) - 1)
        if isinstance(space, Discrete):
            return f"it should be a choice from {first} to {last}"
        return f"it should be a choice for each part, from {first.tolist()} to {last.tolist()}"

    def _checked_numbers(self, box: Box, action: Any) -> Array:
        numbers = np.array(action, np.float32)
        low, high = box.bounds()
        if numbers.shape != box.shape or not ((numbers >= low) & (numbers <= high)).all():
            raise ValueError(f"it should be numbers of shape {box.shape} within the action's bounds")
        return numbers

    def _is_legal(self, action: Any, mask: Array | None) -> bool:
        if mask is None or isinstance(self._space, Box):
            return True
        return permitted(self._space, self._chosen(self._space, action)[None], mask[None])

    def _otherwise(self, mask: Array | None) -> Any:
        if isinstance(self._space, Box):
            return self._space.legal(np.zeros(self._space.shape, np.float32))
        first = np.zeros(self._space.shape, np.int64) if mask is None else first_permitted(self._space, mask)
        return self._given(first)

    def _given(self, chosen: Array) -> Any:
        given = self._spaces.to_system(chosen)
        return int(given) if isinstance(self._space, Discrete) else given

    @staticmethod
    def _copied(action: Any) -> Any:
        return action.copy() if isinstance(action, np.ndarray) else action
