"""Fields and tools that clients send and that this service passes over: they are dropped before a body is read.

Any other unknown field is refused by name.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

import orjson
from pydantic import Field

from deployments.config import Section
from serve_app.validation.body import Sent, parse_json_object

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
    "messages[].cache_control",
    "messages[].content[].cache_control",
    "tools[].cache_control",
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


class Steps(dict[str, "Steps | None"]):
    """What is ignored below a value, by the next step of its path: None where the path ends."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """The ignored fields, and the types of ignored tools."""

    fields: Steps = field(default_factory=Steps)
    tools: frozenset[str] = frozenset()

    def read(self, raw: bytes) -> Sent:
        """Return a body without what is ignored. Raises UnparsableBody if the bytes hold no JSON object."""
        value = parse_json_object(raw)
        return Sent(orjson.dumps(value) if self.drop_from(value) else raw, value)

    def drop_from(self, body: dict[str, Any]) -> bool:
        """Remove what is ignored from a parsed body; return whether there was something."""
        has_dropped = _drop(body, self.fields)
        items = body.get("input")
        for holder in (body, *(items if isinstance(items, list) else ())) if self.tools else ():
            if isinstance(holder, dict) and isinstance(holder.get("tools"), list):
                kept = [tool for tool in holder["tools"] if not self._is_ignored(tool)]
                has_dropped |= len(kept) < len(holder["tools"])
                holder["tools"] = kept
        return has_dropped

    def _is_ignored(self, tool: Any) -> bool:
        return isinstance(tool, dict) and isinstance(tool.get("type"), str) and tool["type"] in self.tools


NOTHING = Ignored()


def ignored_by(config: ClientsConfig, offered: Collection[str] = ()) -> Ignored:
    """Return what a service drops that offers these types of tools."""
    fields = _steps_of((*SHIPPED_FIELDS, *config.ignored_fields))
    return Ignored(fields, frozenset((*SHIPPED_TOOLS, *config.ignored_tools)) - set(offered))


def _steps_of(paths: Iterable[str]) -> Steps:
    steps = Steps()
    for path in paths:
        *before, last = path.replace("[]", ".[]").strip(".").split(".")
        at: Steps | None = steps
        for step in before:
            at = at.setdefault(step, Steps()) if at is not None else None
        if at is not None:
            at[last] = None
    return steps


def _drop(value: Any, steps: Steps) -> bool:
    has_dropped = False
    if isinstance(value, list) and (below := steps.get("[]")) is not None:
        for one in value:
            has_dropped |= _drop(one, below)
    elif isinstance(value, dict):
        for name, below in steps.items():
            if name in value and below is not None:
                has_dropped |= _drop(value[name], below)
            elif name in value:
                del value[name]
                has_dropped = True
    return has_dropped
