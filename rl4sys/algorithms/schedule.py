"""Hyperparameters that change linearly during training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, GetJsonSchemaHandler, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rl4sys.config import Config
from rl4sys.errors import ConfigError


class Schedule(Config):
    """Linear schedule from ``start`` to ``end`` over the first ``fraction`` of training, then constant.

    ``steps`` sets the length in environment steps instead; live training needs ``steps``, because it has no end. In a
    config file, a plain number is a constant schedule.
    """

    start: float = Field(ge=0)
    """Value at the first step."""
    end: float = Field(default=0.0, ge=0)
    """Value after the schedule has ended."""
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Length as a fraction of training.total_timesteps."""
    steps: int | None = Field(default=None, gt=0)
    """Length in environment steps, in place of fraction."""

    @model_validator(mode="before")
    @classmethod
    def _constant(cls, value: Any) -> Any:
        if isinstance(value, Mapping | Schedule):
            return value
        try:
            number = float("not a number" if isinstance(value, bool) else value)
        except (TypeError, ValueError):
            raise ValueError("it should be a number, or a schedule such as {start: 1e-3, end: 0.0}") from None
        return {"start": number, "end": number}

    @model_validator(mode="after")
    def _check_one_length(self) -> Self:
        if self.steps is not None and self.fraction != 1.0:
            raise ValueError(
                "steps and fraction both set the length of the schedule; give one of them, "
                "or steps and fraction: 1.0 if an extended file sets another fraction"
            )
        return self

    @model_serializer(mode="wrap")
    def _as_written(self, full: Any) -> Any:
        if self.start == self.end:
            return self.start
        unused = "steps" if self.steps is None else "fraction"
        return {name: value for name, value in full(self).items() if name != unused}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        full = handler.resolve_ref_schema(handler(core))
        return {"anyOf": [{"type": "number", "minimum": 0}, full]}

    def at(self, steps: int, total_timesteps: int | None) -> float:
        """Return the value after ``steps`` of ``total_timesteps`` environment steps."""
        if self.start == self.end:
            return self.start
        progress = min(1.0, steps / self._length(total_timesteps))
        return self.start + progress * (self.end - self.start)

    def has_length(self, total_timesteps: int | None) -> bool:
        """Return True if the schedule is constant or its length is known."""
        return self.start == self.end or self.steps is not None or total_timesteps is not None

    def _length(self, total_timesteps: int | None) -> float:
        if self.steps is not None:
            return self.steps
        if total_timesteps is None:
            raise ConfigError(
                "a schedule needs training.total_timesteps or its own steps; otherwise give a plain number"
            )
        return self.fraction * total_timesteps


def check_schedules(options: Config, total_timesteps: int | None) -> None:
    """Raise `ConfigError` if an option is a schedule relative to the training length, but the training has no end."""
    for name in type(options).model_fields:
        schedule = getattr(options, name)
        if isinstance(schedule, Schedule) and not schedule.has_length(total_timesteps):
            start, end = schedule.start, schedule.end
            raise ConfigError(
                f"algorithm.{name} goes from {start} to {end} over a fraction of training.total_timesteps, but this "
                "training has no end; set the length of the schedule in steps, such as "
                f"{{start: {start}, end: {end}, steps: 10000}}, or give a plain number"
            )


def constant(value: float) -> Schedule:
    return Schedule(start=value, end=value)
