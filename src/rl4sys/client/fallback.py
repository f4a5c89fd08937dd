"""What is done where the policy cannot decide: always something legal."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, TypeAlias

import numpy as np

from rl4sys.client.spaces import Spaces
from rl4sys.errors import ConfigError
from rl4sys.spec import Array, Box, Discrete

FallbackFunction: TypeAlias = Callable[[Any, Any], Any]
"""Observation and mask → action."""


class Fallback:
    """The user's action or function where its answer is legal, else the first legal choice or zeros within bounds."""

    def __init__(self, spaces: Spaces, action: Any, function: FallbackFunction | None) -> None:
        self._space, self._start, self._function = spaces.spec.action, spaces.start, function
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
        if isinstance(self._space, Discrete):
            choice, last = index(action), self._start + self._space.choices - 1
            if not self._start <= choice <= last:
                raise ValueError(f"it should be a choice from {self._start} to {last}")
            if not self._is_legal(choice, mask):
                raise ValueError(f"{choice} is not legal now")
            return choice
        return self._checked_numbers(self._space, action)

    def _checked_numbers(self, box: Box, action: Any) -> Array:
        numbers = np.array(action, np.float32)
        low, high = box.bounds()
        if numbers.shape != box.shape or not ((numbers >= low) & (numbers <= high)).all():
            raise ValueError(f"it should be numbers of shape {box.shape} within the action's bounds")
        return numbers

    def _is_legal(self, choice: Any, mask: Array | None) -> bool:
        return mask is None or bool(mask[choice - self._start])

    def _otherwise(self, mask: Array | None) -> Any:
        if isinstance(self._space, Discrete):
            return self._start + (0 if mask is None else int(np.argmax(mask)))
        return self._space.legal(np.zeros(self._space.shape, np.float32))

    @staticmethod
    def _copied(action: Any) -> Any:
        return action.copy() if isinstance(action, np.ndarray) else action
