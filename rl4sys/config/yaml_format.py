"""YAML with stricter rules: 3e-4 is a number, and a repeated key is an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from rl4sys.errors import ConfigError


def parse_yaml(text: str, source: str) -> Any:
    """Parse YAML text. Raises a `ConfigError` that mentions ``source`` if the text is not valid YAML."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - _Loader is a SafeLoader
    except (yaml.YAMLError, ValueError) as problem:
        where = str(problem).replace('"<unicode string>"', source)
        raise ConfigError(f"{source} is not valid YAML: {where}") from problem
    except RecursionError as problem:
        raise ConfigError(f"{source} is nested too deeply for a config") from problem


def to_yaml(settings: Mapping[str, Any]) -> str:
    """Format settings as YAML, one key per line, lists inline."""
    return str(yaml.dump(dict(settings), Dumper=_Dumper, sort_keys=False, default_flow_style=False))


class _Loader(yaml.SafeLoader):
    """YAML 1.1 loader that reads 3e-4 as a number and rejects repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        repeated = [key for key in keys if keys.count(key) > 1]
        if repeated:
            raise yaml.constructor.ConstructorError(
                None, None, f"{repeated[0]!r} is given twice; keep one", node.start_mark
            )
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """YAML dumper that writes lists inline, and quotes strings such as "1e5" that `_Loader` would read as numbers."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        return super().represent_sequence(tag, sequence, flow_style=True)


_SCIENTIFIC = re.compile(r"^[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+$")
for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver("tag:yaml.org,2002:float", _SCIENTIFIC, list("-+0123456789"))
