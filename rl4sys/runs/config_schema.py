"""JSON Schema of config files, with the settings of all registered components."""

from __future__ import annotations

from typing import Any

from rl4sys.client.config import ClientConfig
from rl4sys.config import Config
from rl4sys.registry import ALGORITHMS, BUFFERS, NETWORKS, Registry
from rl4sys.runs.config import ExperimentConfig


def experiment_schema() -> dict[str, Any]:
    """Return the JSON Schema of experiment configs. The name of a component determines the settings of its block."""
    schema = plain_schema(ExperimentConfig)
    schema["required"] = ["algorithm", "environment"]
    schema["properties"]["algorithm"] = _one_of(ALGORITHMS, "name", schema["$defs"])
    schema["properties"]["buffer"] = _one_of(BUFFERS, "type", schema["$defs"])
    schema["properties"]["network"] = {
        "type": "object",
        "additionalProperties": _one_of(NETWORKS, "type", schema["$defs"]),
    }
    return schema


def client_schema() -> dict[str, Any]:
    """Return the JSON Schema of client configs. No key is required: the client id defaults to the file name."""
    schema = plain_schema(ClientConfig)
    del schema["required"]
    for block, registry, key in (("algorithm", ALGORITHMS, "name"), ("buffer", BUFFERS, "type")):
        described = schema["properties"][block]["description"]
        schema["properties"][block] = {**_one_of(registry, key, schema["$defs"]), "description": described}
    return schema


def plain_schema(model: type[Config]) -> dict[str, Any]:
    """Return the JSON Schema of a config model, with the additional key `extends` of config files."""
    schema = model.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema.setdefault("$defs", {})
    schema["properties"]["extends"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Shipped config files, or files next to this one, to inherit settings from.",
    }
    return schema


def _one_of(registry: Registry, key: str, definitions: dict[str, Any]) -> dict[str, Any]:
    choices = []
    for name in registry.names():
        choice = registry.get(name).Config.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(choice.pop("$defs", {}))
        choice["properties"][key] = {**choice["properties"][key], "const": name}
        choices.append(choice)
    return {"anyOf": choices}
