"""Rules for the config classes of all kinds of components."""

from __future__ import annotations

from typing import Any

from rl4sys.algorithms.base_algorithm import BaseAlgorithmConfig
from rl4sys.config import Config
from rl4sys.testing.rules import expect, rule


@rule(
    "Config is a frozen, typed model",
    "derive Config from the config class of rl4sys.components, such as AlgorithmConfig, NetworkConfig or BufferConfig, "
    "keep its model_config, and give each field a type other than Any",
)
def config_class_is_frozen_and_typed(model: Any, base: type[Config]) -> None:
    is_derived = isinstance(model, type) and issubclass(model, base)
    expect(is_derived, f"Config is {model!r:.80}; expected a class derived from {base.__name__}")
    expect(model.model_config.get("frozen"), "the fields of Config can be changed after it was parsed")
    is_open = issubclass(model, BaseAlgorithmConfig)
    expect(is_open or model.model_config.get("extra") == "forbid", "Config accepts unknown settings without an error")
    untyped = [name for name, field in model.model_fields.items() if field.annotation is Any]
    expect(not untyped, f"these fields have no type: {', '.join(untyped)}")


@rule(
    "a config that is saved and loaded is the same",
    "use types that YAML can hold (numbers, strings, booleans, lists, dicts, models), and defaults of these types",
)
def config_is_restored_from_its_settings(config: Config) -> None:
    settings = config.model_dump(mode="json", warnings=False)
    loaded = type(config).model_validate(settings)
    expect(loaded == config, f"{config!r:.200} became {loaded!r:.200}")
