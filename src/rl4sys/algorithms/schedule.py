"""A setting that may change as training goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, GetJsonSchemaHandler, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rl4sys.config import Config
from rl4sys.errors import ConfigError


class Schedule(Config):
    """From ``start`` to ``end`` in a straight line over the first ``fraction`` of training, then ``end``.

    The line may take a number of ``steps`` instead, which a live system needs: its training has no end. A plain
    number in a config file stands for a value that never changes.
    """

    start: float = Field(ge=0)
    """The value at the first step."""
    end: float = Field(default=0.0, ge=0)
    """The value from the point where the line ends."""
    fraction: float = Field(default=1.0, gt=0, le=1)
    """The part of training.total_timesteps that the line takes."""
    steps: int | None = Field(default=None, gt=0)
    """The line takes so many steps, instead of a part of training.total_timesteps."""

    @model_validator(mode="before")
    @classmethod
    def _constant(cls, value: Any) -> Any:
        if isinstance(value, Mapping | Schedule):
            return value
        try:
            number = float("not a number" if isinstance(value, bool) else value)
        except (TypeError, ValueError):
            raise ValueError("it should be a number, or a line such as {start: 1e-3, end: 0.0}") from None
        return {"start": number, "end": number}

    @model_validator(mode="after")
    def _check_one_length(self) -> Self:
        if self.steps is not None and self.fraction != 1.0:
            raise ValueError(
                "steps and fraction both say how long the line is; give one of them, "
                "or steps and fraction: 1.0 where a file that is extended has another fraction"
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
        """The value after ``steps`` of ``total_timesteps``."""
        if self.start == self.end:
            return self.start
        progress = min(1.0, steps / self._length(total_timesteps))
        return self.start + progress * (self.end - self.start)

    def has_length(self, total_timesteps: int | None) -> bool:
        """Whether it is known where the line ends; one that never changes needs no end."""
        return self.start == self.end or self.steps is not None or total_timesteps is not None

    def _length(self, total_timesteps: int | None) -> float:
        if self.steps is not None:
            return self.steps
        if total_timesteps is None:
            raise ConfigError("a schedule needs training.total_timesteps or steps of its own; else give a plain number")
        return self.fraction * total_timesteps


def check_schedules(options: Config, total_timesteps: int | None) -> None:
    """Refuse settings of an algorithm that depend on the end of a training that has none."""
    for name in type(options).model_fields:
        schedule = getattr(options, name)
        if isinstance(schedule, Schedule) and not schedule.has_length(total_timesteps):
            start, end = schedule.start, schedule.end
            raise ConfigError(
                f"algorithm.{name} goes from {start} to {end} over a part of training.total_timesteps, and this "
                "training has no end; say how many steps it takes, such as "
                f"{{start: {start}, end: {end}, steps: 10000}}, or give a plain number"
            )


def constant(value: float) -> Schedule:
    return Schedule(start=value, end=value)
