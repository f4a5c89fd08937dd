"""The JSON Schema of config files, with the options of every component that is known."""

from __future__ import annotations

from typing import Any

from rl4sys.client.config import ClientConfig
from rl4sys.config import Config
from rl4sys.experiment.config import ExperimentConfig
from rl4sys.registry import ALGORITHMS, BUFFERS, NETWORKS, Registry


def experiment_schema() -> dict[str, Any]:
    """`ExperimentConfig`, with each component block chosen by the name it gives."""
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
    """`ClientConfig`; who the client is may be left to the name of its file."""
    schema = plain_schema(ClientConfig)
    del schema["required"]
    for block, registry, key in (("algorithm", ALGORITHMS, "name"), ("buffer", BUFFERS, "type")):
        described = schema["properties"][block]["description"]
        schema["properties"][block] = {**_one_of(registry, key, schema["$defs"]), "description": described}
    return schema


def plain_schema(model: type[Config]) -> dict[str, Any]:
    """The model as it is, and what any file may say besides."""
    schema = model.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema.setdefault("$defs", {})
    schema["properties"]["extends"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Shipped files, or files beside this one, whose settings this one starts from.",
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
