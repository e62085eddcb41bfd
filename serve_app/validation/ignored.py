"""Fields and tools that clients send and that this service passes over: they are dropped before a body is read.

Any other unknown field is refused by name.
"""

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from pydantic import Field

from deployments.config import Section
from serve_app.validation.body import LARGE_BODY_BYTES, JsonRefused, parse_json

_STEP = r"(\[\]|[A-Za-z0-9_-]+(\[\])*)"
FieldPath = Annotated[str, Field(pattern=rf"^{_STEP}(\.{_STEP})*$")]
SHIPPED_FIELDS = (
    "client_metadata",
    "input[].internal_chat_message_metadata_passthrough",
    "tools[].search_content_types",
    "tools[].async",
    "tools[].tools[].async",
    "input[].async",
    "input[].tools[].search_content_types",
    "input[].tools[].async",
    "input[].tools[].tools[].async",
)
"""Fields of coding agents that do not change an answer."""
SHIPPED_TOOLS = ("image_generation", "web_search")
"""Tools that coding agents name whether or not a service has them."""


class ClientsConfig(Section):
    """What clients may send although it has no effect here.

    Args:
        ignored_fields: paths of fields that are dropped, such as `client_metadata` or `input[].note`; `[]` stands for
            each element of a list. They add to the fields of coding agents that are dropped anyway.
        ignored_tools: types of tools that are dropped where this service does not have them, such as `computer`. They
            add to `image_generation` and `web_search`, which coding agents always send.
    """

    ignored_fields: tuple[FieldPath, ...] = ()
    ignored_tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ignored:
    """The paths of ignored fields, each as steps, and the types of ignored tools."""

    paths: tuple[tuple[str, ...], ...] = ()
    tools: frozenset[str] = frozenset()

    async def drop(self, raw: bytes) -> bytes:
        """Return the bytes of a body without what is ignored; a large body is read in a thread."""
        if not any(f'"{name}"'.encode() in raw for name in self._names()):
            return raw
        return await asyncio.to_thread(self._drop, raw) if len(raw) > LARGE_BODY_BYTES else self._drop(raw)

    def drop_from(self, body: dict[str, Any]) -> None:
        """Remove what is ignored from a parsed body."""
        for path in self.paths:
            _drop(body, path)
        items = body.get("input")
        holders = [body, *(items if isinstance(items, list) else ())] if self.tools else []
        for holder in holders:
            if isinstance(holder, dict) and isinstance(holder.get("tools"), list):
                holder["tools"] = [tool for tool in holder["tools"] if not self._is_ignored(tool)]

    def _names(self) -> Iterator[str]:
        yield from (path[-1] for path in self.paths)
        yield from self.tools

    def _drop(self, raw: bytes) -> bytes:
        try:
            body = parse_json(raw)
        except JsonRefused:  # The route says why.
            return raw
        if not isinstance(body, dict):
            return raw
        self.drop_from(body)
        return orjson.dumps(body)

    def _is_ignored(self, tool: Any) -> bool:
        return isinstance(tool, dict) and isinstance(tool.get("type"), str) and tool["type"] in self.tools


NOTHING = Ignored()


def ignored_by(config: ClientsConfig, offered: Collection[str] = ()) -> Ignored:
    """Return what a service drops that offers these types of tools."""
    paths = dict.fromkeys((*SHIPPED_FIELDS, *config.ignored_fields))
    return Ignored(tuple(map(_steps, paths)), frozenset((*SHIPPED_TOOLS, *config.ignored_tools)) - set(offered))


def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.replace("[]", ".[]").strip(".").split("."))


def _drop(value: Any, path: tuple[str, ...]) -> None:
    step, *rest = path
    if step == "[]":
        for one in value if isinstance(value, list) else ():
            _drop(one, tuple(rest))
    elif isinstance(value, dict) and rest:
        _drop(value.get(step), tuple(rest))
    elif isinstance(value, dict):
        value.pop(step, None)
