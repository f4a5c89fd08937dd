"""Range of values that a sweep or study tries for one setting."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from rl4sys.config import Config

_MAX_VALUES = 10_000


class Range(Config):
    """Values to try for one setting: a list of choices, or the numbers between two bounds."""

    low: float | None = None
    """Lower bound (inclusive)."""
    high: float | None = None
    """Upper bound (inclusive)."""
    log: bool = False
    """True to sample uniformly in log space, so that 0.001 to 0.01 is as likely as 0.01 to 0.1."""
    step: float | None = Field(default=None, gt=0)
    """Distance between values: low, low + step, low + 2 * step, and so on. Without a step, any value is possible."""
    integer: bool = False
    """True to allow only integers."""
    choices: list[Any] | None = None
    """List of values instead of bounds: `[1, 2]` is short for `{choices: [1, 2]}`."""

    @model_validator(mode="before")
    @classmethod
    def _read_list(cls, given: Any) -> Any:
        if isinstance(given, list):
            return {"choices": given}
        if not isinstance(given, dict | Range):
            raise ValueError("expected a list of values, such as [1e-4, 1e-3], or a range {low: 1e-4, high: 1e-3}")  # noqa: TRY004 - pydantic takes no TypeError
        return given

    @model_validator(mode="after")
    def _check(self) -> Range:
        if self.choices is not None:
            self._check_choices(self.choices)
            return self
        if self.low is None or self.high is None or not self.low < self.high:
            raise ValueError("expected low and high, with low less than high, or choices")
        if self.log and self.low <= 0:
            raise ValueError("with log: true, low must be greater than 0")
        if self.log and self.step is not None:
            raise ValueError("log: true cannot be combined with step; remove one of them")
        if self.integer and any(n is not None and n % 1 for n in (self.low, self.high, self.step)):
            raise ValueError("with integer: true, low, high and step must be integers")
        return self

    def _check_choices(self, choices: list[Any]) -> None:
        if not choices:
            raise ValueError("expected at least one value")
        if self.low is not None or self.high is not None or self.step is not None or self.log or self.integer:
            raise ValueError("choices cannot be combined with low, high, log, step or integer")
        texts = [json.dumps(choice, sort_keys=True, default=str) for choice in choices]
        if len(set(texts)) < len(texts):
            raise ValueError("expected distinct values; a value is given twice")

    @property
    def values(self) -> list[Any] | None:
        """All values in order; None if the range is continuous or logarithmic or has more than 10,000 values."""
        if self.choices is not None:
            return self.choices
        if self._value_count is None or self._value_count > _MAX_VALUES:
            return None
        return [self._value_at(index) for index in range(self._value_count)]

    def sample(self, rng: np.random.Generator) -> Any:
        """Draw a value uniformly, in log space if `log` is set."""
        if self.choices is not None:
            return self.choices[int(rng.integers(len(self.choices)))]
        if self._value_count is not None:
            return self._value_at(int(rng.integers(self._value_count)))
        low, high = self._bounds
        if not self.log:
            return float(rng.uniform(low, high))
        # Integers are rounded real numbers. Widening the range by 0.5 on both sides makes the bounds as likely as other
        # integers.
        half = 0.5 if self.integer else 0.0
        drawn = math.exp(rng.uniform(math.log(low - half), math.log(high + half)))
        return self._as_number(min(max(drawn, low), high))

    def contains(self, value: Any) -> bool:
        if self.choices is not None:
            return any(json.dumps(choice) == json.dumps(value) for choice in self.choices)
        low, high = self._bounds
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            return False
        steps = (value - low) / (self.step or 1.0)
        return not (self.step or self.integer) or abs(steps - round(steps)) < 1e-9

    @property
    def choices_or_bounds(self) -> list[Any]:
        """All choices, or low and high if there are no choices."""
        return self.choices if self.choices is not None else [self._as_number(bound) for bound in self._bounds]

    @property
    def _value_count(self) -> int | None:
        """Number of values of a range with integers or a step; None if the range is continuous or logarithmic."""
        low, high = self._bounds
        if self.log or not (self.step or self.integer):
            return None
        return int((high - low) / (self.step or 1.0) + 1e-9) + 1

    @property
    def _bounds(self) -> tuple[float, float]:
        assert self.low is not None  # a range without choices has both bounds
        assert self.high is not None
        return self.low, self.high

    def _value_at(self, index: int) -> float | int:
        # Without rounding, 0.1 + 2 * 0.1 gives 0.30000000000000004.
        return self._as_number(round(self._bounds[0] + index * (self.step or 1.0), 12))

    def _as_number(self, value: float) -> float | int:
        return round(value) if self.integer else float(value)
