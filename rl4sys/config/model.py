"""Base class of typed configs, and validation of settings with readable errors."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails

from rl4sys.errors import ConfigError


class Config(BaseModel):
    """Base class of all configs: frozen, rejects unknown keys; each field is documented by the string below it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=False)

    @field_validator("*", mode="before")
    @classmethod
    def _reject_booleans_as_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        annotation = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and (annotation in (int, float) or set(get_args(annotation)) & {int, float}):
            raise ValueError("expected a number, not true or false")
        return value


Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], settings: Any, at: str = "") -> Model:
    """Validate settings as ``model``. Raises a `ConfigError` that lists all invalid keys, prefixed with ``at``."""
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{at or 'the config'} is {settings!r:.80}; expected a block of settings (key: value)")
    try:
        return model.model_validate(settings)
    except ValidationError as problem:
        raise ConfigError("\n".join(_explain_all(model, problem.errors(), at))) from problem


OTHER_NAMES = {
    "learning_rate": "lr",
    "discount": "gamma",
    "lam": "gae_lambda",
    "n_epochs": "epochs",
    "batch_size": "minibatch_size",
    "clip_range": "clip_ratio",
    "ent_coef": "entropy_coef",
    "vf_coef": "value_coef",
    "n_envs": "num_envs",
    "id": "name",
    "env_id": "name",
    "hidden_sizes": "hidden_dims",
    "net_arch": "hidden_dims",
    "capacity": "size",
    "total_steps": "total_timesteps",
    "n_timesteps": "total_timesteps",
    "eval_freq": "eval_frequency",
    "evaluation_frequency": "eval_frequency",
    "n_eval_episodes": "num_eval_episodes",
    "eval_n_episodes": "num_eval_episodes",
    "eval_episodes": "num_eval_episodes",
    "save_freq": "checkpoint_frequency",
    "checkpoint_freq": "checkpoint_frequency",
    "buffer_size": "size",
    "max_size": "size",
    "hidden_layer_sizes": "hidden_dims",
    "train_freq": "train_frequency",
    "train_every_n_steps": "train_frequency",
    "n_train_repeat": "gradient_steps",
    "n_initial_exploration_steps": "learning_starts",
    "Q_lr": "lr",
    "policy_lr": "actor_lr",
    "alpha_lr": "temperature_lr",
    "max_path_length": "max_episode_steps",
    "exp_name": "name",
    "exp-name": "name",
    "checkpoint-frequency": "checkpoint_frequency",
}
"""Names of settings in other libraries, mapped to the names used here."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean x?"`` for the known word most similar to ``word``, or a full stop if none is similar.

    A known word may also be suggested because one of its names in other libraries (`OTHER_NAMES`) is similar.
    """
    names = {name: name for name in known}
    names |= {other: name for other, name in OTHER_NAMES.items() if name in names and other not in names}
    close = [word] if word in names else difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"; did you mean {names[close[0]]}?" if close else "."


def _explain_all(model: type[BaseModel], errors: list[ErrorDetails], at: str) -> list[str]:
    """Return one line per invalid setting, then the known settings of each block that has an unknown setting."""
    lines = [_explain(model, error, at) for error in errors]
    for place in {error["loc"][:-1]: None for error in errors if error["type"] == "extra_forbidden"}:
        lines.append(f"Known in {_dotted(at, place) or 'the config'}: {', '.join(_fields_at(model, place))}.")
    return lines


def _dotted(at: str, loc: tuple[int | str, ...]) -> str:
    return ".".join([*([at] if at else []), *(str(part) for part in loc)])


def _explain(model: type[BaseModel], error: ErrorDetails, at: str) -> str:
    path = _dotted(at, error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{path} is not a setting{did_you_mean(str(error['loc'][-1]), _fields_at(model, error['loc'][:-1]))}"
    if error["type"] == "string_pattern_mismatch":
        pattern = error["ctx"]["pattern"]
        return f"{path} is {error['input']!r:.80}; expected text that matches {pattern}{_purpose(model, error['loc'])}"
    if error["type"] == "missing":
        return f"{path} is missing; add it{_purpose(model, error['loc'])}"
    return f"{path} is {error['input']!r:.80}; {_expectation(error)}{_purpose(model, error['loc'])}"


_EXPECTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a block of settings",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer with fewer digits",
    "int_type": "an integer",
    "list_type": "a list",
    "model_type": "a block of settings",
    "path_type": "a path",
    "string_type": "a string",
}
"""Expected values by error type of pydantic."""


def _expectation(error: ErrorDetails) -> str:
    """Return the expected value, as a clause after the given value."""
    if error["type"] in _EXPECTED:
        return f"expected {_EXPECTED[error['type']]}"
    message = error["msg"].removeprefix("Value error, ")
    message = re.sub(r"^Input should be (?=greater|less)", "expected a value ", message)
    return re.sub(r"^(Input should be|\w+ should have)", "expected", message).partition(" after validation")[0]


def _purpose(model: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    """Return the documentation of the setting in parentheses, or an empty string."""
    parent = _model_at(model, loc[:-1])
    field = parent.model_fields.get(str(loc[-1])) if parent and loc else None
    return f" ({field.description.rstrip('.')})" if field and field.description else ""


def _fields_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    found = _model_at(model, loc)
    return sorted(found.model_fields) if found else []


def _model_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel] | None:
    parts = iter(loc)
    for part in parts:
        field = model.model_fields.get(str(part))
        options = [field.annotation, *get_args(field.annotation)] if field else []
        nested = [o for o in options if isinstance(o, type) and issubclass(o, BaseModel)]
        if not nested:
            return None
        model = nested[0]
        if field is not None and get_origin(field.annotation) is dict:
            next(parts, None)
    return model
