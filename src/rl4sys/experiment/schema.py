"""The JSON Schema of config files, with the options of every component that is known."""

from __future__ import annotations

from typing import Any

from rl4sys.experiment.config import ExperimentConfig
from rl4sys.registry import ALGORITHMS, BUFFERS, NETWORKS, Registry


def experiment_schema() -> dict[str, Any]:
    """`ExperimentConfig`, with each component block chosen by the name it gives."""
    schema = ExperimentConfig.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["required"] = ["algorithm", "environment"]
    schema["properties"]["extends"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Shipped files, or files beside this one, whose settings this one starts from.",
    }
    schema["properties"]["algorithm"] = _one_of(ALGORITHMS, "name", schema["$defs"])
    schema["properties"]["buffer"] = _one_of(BUFFERS, "type", schema["$defs"])
    schema["properties"]["network"] = {
        "type": "object",
        "additionalProperties": _one_of(NETWORKS, "type", schema["$defs"]),
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
