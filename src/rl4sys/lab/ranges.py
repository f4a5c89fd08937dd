"""What values a setting may take in a sweep or a study."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from rl4sys.config import Config

_MOST_VALUES = 10_000


class Range(Config):
    """Values to choose from, written as a list, or numbers between two bounds."""

    low: float | None = None
    """The smallest number."""
    high: float | None = None
    """The largest number; itself possible."""
    log: bool = False
    """Draw evenly by size instead of by difference: as often from 0.001 to 0.01 as from 0.01 to 0.1."""
    step: float | None = Field(default=None, gt=0)
    """Only low, low + step, low + 2 step and so on."""
    integer: bool = False
    """Only whole numbers."""
    choices: list[Any] | None = None
    """The values themselves, instead of bounds: `[1, 2]` is short for `{choices: [1, 2]}`."""

    @model_validator(mode="before")
    @classmethod
    def _read_list(cls, given: Any) -> Any:
        if isinstance(given, list):
            return {"choices": given}
        if not isinstance(given, dict | Range):
            raise ValueError("it should be a list of values, such as [1e-4, 1e-3], or a range {low: 1e-4, high: 1e-3}")  # noqa: TRY004 - pydantic takes no TypeError
        return given

    @model_validator(mode="after")
    def _check(self) -> Range:
        if self.choices is not None:
            self._check_choices(self.choices)
            return self
        if self.low is None or self.high is None or not self.low < self.high:
            raise ValueError("a range needs low and high, low below high; or give choices")
        if self.log and (self.low <= 0 or self.step is not None):
            raise ValueError("with log: true, low is above 0 and there is no step")
        if self.integer and any(n is not None and n % 1 for n in (self.low, self.high, self.step)):
            raise ValueError("with integer: true, low, high and step are whole numbers")
        return self

    def _check_choices(self, choices: list[Any]) -> None:
        if not choices:
            raise ValueError("it should have at least one value")
        if self.low is not None or self.high is not None or self.step is not None or self.log or self.integer:
            raise ValueError("choices go without low, high, log, step and integer")
        texts = [json.dumps(choice, sort_keys=True, default=str) for choice in choices]
        if len(set(texts)) < len(texts):
            raise ValueError("a value is given twice")

    @property
    def values(self) -> list[Any] | None:
        """All there are, in order; None where there are too many to go through."""
        if self.choices is not None:
            return self.choices
        if self._stepped is None or self._stepped > _MOST_VALUES:
            return None
        return [self._at(index) for index in range(self._stepped)]

    def draw(self, chance: np.random.Generator) -> Any:
        """One of them, each as likely as the others."""
        if self.choices is not None:
            return self.choices[int(chance.integers(len(self.choices)))]
        if self._stepped is not None:
            return self._at(int(chance.integers(self._stepped)))
        low, high = self._bounds
        if not self.log:
            return float(chance.uniform(low, high))
        # Whole numbers are roundings, and the first and last are to have as much to be rounded from as the others.
        half = 0.5 if self.integer else 0.0
        drawn = math.exp(chance.uniform(math.log(low - half), math.log(high + half)))
        return self._number(min(max(drawn, low), high))

    def holds(self, value: Any) -> bool:
        """Whether it is one of them."""
        if self.choices is not None:
            return any(json.dumps(choice) == json.dumps(value) for choice in self.choices)
        low, high = self._bounds
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            return False
        steps = (value - low) / (self.step or 1.0)
        return not (self.step or self.integer) or abs(steps - round(steps)) < 1e-9

    @property
    def ends(self) -> list[Any]:
        """All values of a list; the bounds of a range."""
        return self.choices if self.choices is not None else [self._number(bound) for bound in self._bounds]

    @property
    def _stepped(self) -> int | None:
        """How many numbers there are, if they can be counted."""
        low, high = self._bounds
        if self.log or not (self.step or self.integer):
            return None
        return int((high - low) / (self.step or 1.0) + 1e-9) + 1

    @property
    def _bounds(self) -> tuple[float, float]:
        assert self.low is not None  # a range without choices has both
        assert self.high is not None
        return self.low, self.high

    def _at(self, index: int) -> float | int:
        # Without the rounding, 0.1 + 2 * 0.1 would be 0.30000000000000004.
        return self._number(round(self._bounds[0] + index * (self.step or 1.0), 12))

    def _number(self, value: float) -> float | int:
        return round(value) if self.integer else float(value)
