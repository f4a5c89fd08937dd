"""Changes of settings in the text of a YAML file that keep comments and layout."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from rl4sys.config import Settings, parse_yaml, to_yaml
from rl4sys.config.migration import Change


def rewrite_yaml(text: str, changes: Iterable[Change], settings: Settings) -> tuple[str, bool]:
    """Apply the changes to a YAML text. ``settings`` is the expected content of the new text.

    Returns the new text, and True if no comment was lost. If the edited text does not parse to ``settings``, the new
    text is written from ``settings``, without comments.
    """
    edited = text
    for change in changes:
        edited = _YamlText(edited).apply(change)
    if parse_yaml(edited, "the migrated file") == settings:
        return edited, True
    return to_yaml({"version": settings["version"], **settings}), "#" not in text


@dataclass(frozen=True)
class _Pair:
    """Key and value of one setting, with their positions in the text."""

    block: yaml.MappingNode
    key: yaml.ScalarNode
    value: yaml.Node


class _YamlText:
    """YAML text and its parsed nodes. Methods that edit the text return a new text."""

    def __init__(self, text: str) -> None:
        self._text = text if text.endswith("\n") else text + "\n"
        root = yaml.compose(text, yaml.SafeLoader)
        # The text is a mapping, or empty if the last setting was removed.
        self._root = root if isinstance(root, yaml.MappingNode) else yaml.MappingNode("", [], flow_style=False)

    def apply(self, change: Change) -> str:
        if change.new is None:
            return self._without(str(change.old))
        if change.old is None:
            return self._with(change.new, change.value)
        old_block, _, old = change.old.rpartition(".")
        new_block, _, new = change.new.rpartition(".")
        if old_block == new_block and old != new:
            return self._renamed(change.old, new)
        return _YamlText(self._without(change.old))._with(change.new, change.value, self._comment(change.old))

    def _renamed(self, dotted: str, name: str) -> str:
        key = self._find(dotted).key
        return self._replaced(key.start_mark.index, key.end_mark.index, name)

    def _without(self, dotted: str) -> str:
        pair = self._find(dotted)
        if len(pair.block.value) == 1 and "." in dotted:
            return self._without(dotted.rpartition(".")[0])
        if pair.block.flow_style:
            return self._without_flow(pair)
        lines = self._text.splitlines(keepends=True)
        del lines[pair.key.start_mark.line : _last_line(pair.value) + 1]
        return "".join(lines)

    def _without_flow(self, pair: _Pair) -> str:
        """Remove a setting and one adjacent comma from a flow mapping such as ``{a: 1, b: 2}``."""
        pairs = pair.block.value
        number = [key for key, _ in pairs].index(pair.key)
        if number + 1 < len(pairs):
            return self._replaced(pair.key.start_mark.index, pairs[number + 1][0].start_mark.index, "")
        start = pairs[number - 1][1].end_mark.index if number else pair.key.start_mark.index
        return self._replaced(start, pair.value.end_mark.index, "")

    def _comment(self, dotted: str) -> str:
        """Return the comment on the line of a setting, or an empty string."""
        rest = self._text[self._find(dotted).value.end_mark.index :].partition("\n")[0]
        return rest if rest.strip().startswith("#") else ""

    def _with(self, dotted: str, value: Any, comment: str = "") -> str:
        block, rest = self._root, dotted.split(".")
        while found := _entry(block, rest[0]):
            if not isinstance(found.value, yaml.MappingNode) or len(rest) == 1:
                return self._with_value(dotted, found, value)
            block, rest = found.value, rest[1:]
        for name in reversed(rest[1:]):
            value = {name: value}
        if dotted == "version":
            return self._with_first(rest[0], value)
        if block.flow_style:
            return self._with_flow(block, rest[0], value)
        return self._with_lines(block, to_yaml({rest[0]: value}), comment)

    def _with_value(self, dotted: str, pair: _Pair, value: Any) -> str:
        if isinstance(pair.value, yaml.ScalarNode):
            return self._replaced(pair.value.start_mark.index, pair.value.end_mark.index, _in_line(value))
        return _YamlText(self._without(dotted))._with(dotted, value)

    def _with_flow(self, block: yaml.MappingNode, name: str, value: Any) -> str:
        closing = block.end_mark.index - 1
        comma = ", " if block.value else ""
        end = block.value[-1][1].end_mark.index if block.value else closing
        return self._replaced(end, end, f"{comma}{name}: {_in_line(value)}")

    def _with_lines(self, block: yaml.MappingNode, addition: str, comment: str) -> str:
        indent = " " * block.value[0][0].start_mark.column if block.value else ""
        lines = self._text.splitlines(keepends=True)
        at = _last_line(block) + 1 if block.value else len(lines)
        lines[at:at] = [f"{indent}{line}\n" for line in (addition.rstrip() + comment).splitlines()]
        return "".join(lines)

    def _with_first(self, name: str, value: Any) -> str:
        first = self._root.value[0][0].start_mark.index if self._root.value else len(self._text)
        return self._replaced(first, first, to_yaml({name: value}))

    def _find(self, dotted: str) -> _Pair:
        block, _, name = dotted.rpartition(".")
        inside = self._find(block).value if block else self._root
        assert isinstance(inside, yaml.MappingNode)  # changes refer to existing settings
        found = _entry(inside, name)
        assert found is not None
        return found

    def _replaced(self, start: int, end: int, by: str) -> str:
        return self._text[:start] + by + self._text[end:]


def _entry(block: yaml.MappingNode, name: str) -> _Pair | None:
    for key, value in block.value:
        if key.value == name:
            return _Pair(block, key, value)
    return None


def _last_line(node: yaml.Node) -> int:
    """Return the index of the last line of a node. The parser's end mark may include comments after the node."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return _last_line(node.value[-1][1])
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return _last_line(node.value[-1])
    end = node.end_mark
    return int(end.line if end.column or end.line == node.start_mark.line else end.line - 1)


def _in_line(value: Any) -> str:
    return str(yaml.dump([value], default_flow_style=True, width=10**6)).strip()[1:-1]
