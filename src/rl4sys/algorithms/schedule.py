"""A setting that may change as training goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, GetJsonSchemaHandler, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rl4sys.config import Config
from rl4sys.errors import ConfigError


class Schedule(Config):
    """From ``start`` to ``end`` in a straight line over the first ``fraction`` of training, then ``end``.

    A plain number in a config file stands for a value that never changes.
    """

    start: float = Field(ge=0)
    """The value at the first step."""
    end: float = Field(default=0.0, ge=0)
    """The value from the point where the line ends."""
    fraction: float = Field(default=1.0, gt=0, le=1)
    """The part of training.total_timesteps that the line takes."""

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

    @model_serializer(mode="wrap")
    def _plain_number(self, full: Any) -> Any:
        return self.start if self.start == self.end else full(self)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        full = handler.resolve_ref_schema(handler(core))
        return {"anyOf": [{"type": "number", "minimum": 0}, full]}

    def at(self, steps: int, total_timesteps: int | None) -> float:
        """The value after ``steps`` of ``total_timesteps``."""
        if self.start == self.end:
            return self.start
        if total_timesteps is None:
            raise ConfigError("a schedule needs training.total_timesteps; without it give a plain number")
        progress = min(1.0, steps / (self.fraction * total_timesteps))
        return self.start + progress * (self.end - self.start)


def constant(value: float) -> Schedule:
    return Schedule(start=value, end=value)
