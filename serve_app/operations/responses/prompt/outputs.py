"""The outputs of calls, and the calls of tools that do not run here, as the model reads them."""

from typing import Any

import orjson

from serve_app.operations.responses.events.writer import Item
from serve_app.operations.responses.tools.loading import found_text
from serve_app.schemas.responses.items import TOOL_SEARCH_OUTPUT
from serve_app.schemas.responses.tools import CLIENT_BUILT_INS
from serve_app.schemas.tools import called_name

_ENVELOPE = frozenset(
    {"type", "id", "call_id", "status", "name", "namespace", "caller", "created_by", "max_output_length"}
)
"""The fields around what a tool was asked, or has answered."""
_MAX_WORD_CHARS = 1_024
"""A longer value without a space is data, such as an image in base64."""
CALL_WENT_WRONG = "The call failed:"
NO_OUTPUT = "[The call has no output.]"
UNSEEN = "[An image, which this model cannot see.]"


def call_id_of(item: Item) -> str:
    """Return the id that connects a call and its output."""
    return str(item.get("call_id") or item["id"])


def output_type(call_type: str) -> str:
    """Return the type of the items that answer calls of a type, if there are any."""
    return TOOL_SEARCH_OUTPUT if call_type == "tool_search_call" else f"{call_type}_output"


def external_call(item: Item) -> tuple[str, str]:
    """Return the name and the arguments, as JSON, of a call of a tool that does not run here."""
    tool = CLIENT_BUILT_INS.get(item["type"])
    shown = tool.show_call(item) if tool is not None else None
    if tool is not None and isinstance(shown, dict):
        return tool.called, orjson.dumps(shown).decode()
    name = called_name(item.get("namespace"), item.get("name") or item["type"].removesuffix("_call"))
    return name, readable_json(_said(item))


def external_output(item: Item) -> str | list[Item]:
    """Return the output of such a call: what a search has found, what its only field has, or all fields as JSON.

    Of a patch only the status may say that it failed.
    """
    if item["type"] == TOOL_SEARCH_OUTPUT:
        return found_text(item.get("tools"))
    said = _said(item)
    output = output_of(said.popitem()[1] if len(said) == 1 else said) if said else NO_OUTPUT
    return f"{CALL_WENT_WRONG} {output}" if item.get("status") == "failed" and isinstance(output, str) else output


def output_of(output: Any) -> str | list[Item]:
    """Return the output of a call: text, or parts if images are among them."""
    if isinstance(output, str):
        return output
    if isinstance(output, list) and all(map(_is_part, output)):
        return content_of(output)
    return readable_json(output)


def readable_json(value: Any) -> str:
    """Return a value as JSON for a model, without what only a program can read."""
    return orjson.dumps(_without_data(value)).decode()


def content_of(parts: list[Item]) -> str | list[Item]:
    """Return parts of an item as the content of a message."""
    if all(part["type"] != "input_image" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return [
        {"type": "image_url", "image_url": {"url": part["image_url"], "detail": _detail(part.get("detail"))}}
        if part["type"] == "input_image"
        else {"type": "text", "text": part["text"]}
        for part in parts
    ]


def agent_text(item: Item) -> str:
    """Return what an agent says in an `agent_message`."""
    return "".join(part.get("text") or part.get("encrypted_content") or "" for part in item["content"])


def without_tool_images(messages: list[Item]) -> list[Item]:
    """Return messages for a model that sees no images: the outputs of calls say that there was one."""
    return [
        {**message, "content": "\n".join(part.get("text", UNSEEN) for part in message["content"])}
        if message["role"] == "tool" and isinstance(message["content"], list)
        else message
        for message in messages
    ]


def _said(item: Item) -> Item:
    return {name: value for name, value in item.items() if name not in _ENVELOPE and value is not None}


def _is_part(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    kind = part.get("type")
    return (kind == "input_text" and isinstance(part.get("text"), str)) or (
        kind == "input_image" and isinstance(part.get("image_url"), str)
    )


def _detail(detail: str | None) -> str:
    return "high" if detail == "original" else detail or "auto"


def _without_data(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_data(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_data(one) for one in value]
    if isinstance(value, str) and len(value) > _MAX_WORD_CHARS and len(value.split(maxsplit=1)) == 1:
        return "[data]"
    return value
