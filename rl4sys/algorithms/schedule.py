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

    ``steps`` sets the length in environment steps instead of ``fraction``; live training has no fixed length and needs
    ``steps``. In a config file, a plain number is a constant schedule.
    """

    start: float = Field(ge=0)
    """Value at the first step."""
    end: float = Field(default=0.0, ge=0)
    """Value after the schedule has ended."""
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Length as a fraction of training.total_timesteps."""
    steps: int | None = Field(default=None, gt=0)
    """Length in environment steps, instead of `fraction`."""

    @model_validator(mode="before")
    @classmethod
    def _constant(cls, value: Any) -> Any:
        if isinstance(value, Mapping | Schedule):
            return value
        try:
            number = float("not a number" if isinstance(value, bool) else value)
        except (TypeError, ValueError):
            raise ValueError("expected a number, or a schedule such as {start: 1e-3, end: 0.0}") from None
        return {"start": number, "end": number}

    @model_validator(mode="after")
    def _check_one_length(self) -> Self:
        if self.steps is not None and self.fraction != 1.0:
            raise ValueError(
                "steps and fraction both set the length of the schedule; give only one of them. If an extended config "
                "file sets fraction, give steps and fraction: 1.0"
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
                "the length of a schedule is unknown; set training.total_timesteps or the steps of the schedule, or "
                "give a number instead of a schedule"
            )
        return self.fraction * total_timesteps


def check_schedules(options: Config, total_timesteps: int | None) -> None:
    """Raise `ConfigError` if a schedule is relative to the length of the training run, but the length is unknown."""
    for name in type(options).model_fields:
        schedule = getattr(options, name)
        if isinstance(schedule, Schedule) and not schedule.has_length(total_timesteps):
            start, end = schedule.start, schedule.end
            raise ConfigError(
                f"algorithm.{name} goes from {start} to {end} over a fraction of training.total_timesteps, but this "
                "training run has no fixed length; set the length of the schedule in steps, such as "
                f"{{start: {start}, end: {end}, steps: 10000}}, or give a number instead of a schedule"
            )


def constant(value: float) -> Schedule:
    return Schedule(start=value, end=value)
