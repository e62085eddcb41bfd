"""A Serve file as it is written: its content, and the line of each setting, also through anchors and merges."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deployments.config import ConfigError

Place = tuple[str | int, ...]
"""The way to a setting from the top of the file: names in mappings, numbers in lists."""

ANY = None
"""Stands for every entry of a list or a mapping in a `Pattern`."""
Pattern = tuple[str | int | None, ...]

_PLAIN = (
    (r"found character '\\t'", "a tab, where YAML needs spaces"),
    (r"found character '(.)' that cannot start", "text that begins with {} needs quotes"),
    (r"mapping values are not allowed", "indented too far, or text with a colon that needs quotes"),
    (r"expected <block end>", "does not fit the lines above: look at the indentation, quotes and brackets"),
    (r"could not find expected ':'", "a name without a colon, on this line or the one before"),
    (r"found unexpected end of stream", "a quotation mark is never closed"),
    (r"expected ',' or '(.)'", "a comma or a {} is missing here, or above"),
    (r"found undefined alias '(.+)'", "*{0} is used, but &{0} is not defined above it"),
    (r"found duplicate anchor '(.+)'; first", "&{} is defined a second time"),
    (r"but found another document", "--- begins a second document, and a file may have only one"),
)
"""What PyYAML says, and the same for people who do not write YAML parsers."""

_MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a Serve file, and where each of its settings stands."""

    path: Path
    content: Any
    root: yaml.Node | None
    first_line: int = 1

    def line_of(self, place: Place) -> int:
        """Return the line of a setting, counted from 1: of its name, or of the nearest section that is in the file."""
        node, line = self.root, 0
        for part in place:
            found = _find(node, part) if node is not None else None
            if found is None:
                break
            line, node = found
        return self.first_line + line

    def repeated(self) -> Iterator[tuple[Place, int]]:
        """Yield each name that stands twice in a section, with the line where it stood before."""
        for place, line in _repeated(self.root, (), set()):
            yield place, self.first_line + line

    def find(self, pattern: Pattern) -> Iterator[tuple[Place, Any]]:
        """Yield the settings at the places that fit a pattern."""
        yield from _matches(self.content, pattern, ())


def read_document(path: Path) -> Document:
    """Return a Serve file, or the one inside a RayService of KubeRay.

    Raises:
        ConfigError: it cannot be read, is empty, or is not YAML; the message has the line.
    """
    try:
        document = _parse(path, path.read_text(encoding="utf-8"), 1)
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if document.content is None:
        raise ConfigError(f"{path}: the file has no settings")
    if not isinstance(document.content, dict) or document.content.get("kind") != "RayService":
        return document
    node, line = document.root, 0
    for name in ("spec", "serveConfigV2"):
        found = _find(node, name) if node is not None else None
        if found is None:
            raise ConfigError(f"{path}:{document.first_line + line}: this RayService has no spec.serveConfigV2")
        line, node = found
    if not isinstance(node, yaml.ScalarNode):
        raise ConfigError(f"{path}:{1 + line}: spec.serveConfigV2 should be text: write | after its name")
    is_block = node.style in ("|", ">")
    return _parse(path, node.value, 1 + node.start_mark.line + is_block)


def _parse(path: Path, text: str, first_line: int) -> Document:
    try:
        root = yaml.compose(text, yaml.SafeLoader)
        return Document(path, yaml.safe_load(text), root, first_line)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = first_line + (mark.line if mark else 0)
        raise ConfigError(f"{path}:{line}: not valid YAML: {_in_plain_words(error)}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None


def _in_plain_words(error: yaml.MarkedYAMLError) -> str:
    for pattern, words in _PLAIN:
        for said in (error.problem, error.context):
            if said and (found := re.search(pattern, said)) is not None:
                return words.format(*found.groups())
    return str(error.problem or error.context)


def _find(node: yaml.Node, part: str | int) -> tuple[int, yaml.Node] | None:
    """Return the line, counted from 0, and the value of an entry; None if there is none."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line, node.value[part]
    if isinstance(node, yaml.MappingNode):
        for key, value in _entries(node):
            if key.value == str(part):
                return key.start_mark.line, value
    return None


def _entries(node: yaml.MappingNode) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    """Yield the entries of a mapping, those that count first: its own, the last one first, then those merged in."""
    merged: list[yaml.Node] = []
    for key, value in reversed(node.value):
        if key.tag == _MERGE:
            merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
        elif isinstance(key, yaml.ScalarNode):
            yield key, value
    for other in merged:
        if isinstance(other, yaml.MappingNode):
            yield from _entries(other)


def _repeated(node: yaml.Node | None, place: Place, seen: set[int]) -> Iterator[tuple[Place, int]]:
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _repeated(item, (*place, index), seen)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in lines and key.tag != _MERGE:
                    yield (*place, key.value), lines[key.value]
                lines[key.value] = key.start_mark.line
                yield from _repeated(value, (*place, key.value), seen)


def _matches(value: Any, pattern: Pattern, place: Place) -> Iterator[tuple[Place, Any]]:
    if not pattern:
        yield place, value
        return
    part, *rest = pattern
    if isinstance(value, dict):
        names = list(value) if part is ANY else [part]
        inner = [(name, value[name]) for name in names if name in value]
    elif isinstance(value, list):
        numbers = range(len(value)) if part is ANY else [part]
        inner = [(number, value[number]) for number in numbers if isinstance(number, int) and number < len(value)]
    else:
        inner = []
    for name, item in inner:
        yield from _matches(item, tuple(rest), (*place, name))
