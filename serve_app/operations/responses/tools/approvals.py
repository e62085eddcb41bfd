"""The client's approvals of calls of remote tools, and the names of remote tools as functions of a chat."""

import hashlib
import re
from collections.abc import Collection, Sequence

from serve_app.errors.api import BadRequest, shorten
from serve_app.operations.responses.events.writer import Item

NOT_DECIDED = "This call was not carried out: the user has not approved it."
_DECLINED = "This call was not carried out: the user declined it."
_MAX_NAME_CHARS = 64
_HASH_CHARS = 8
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_NOT_THE_MODELS = frozenset({"mcp_approval_response", "function_call_output"})


def function_name(server_label: str, name: str) -> str:
    """Return the function name of a remote server's tool, the same in every turn of a conversation.

    If the names are too long or ambiguous together, a hash makes it unique.
    """
    whole = f"{server_label}__{name}"
    plain = _NOT_IN_NAMES.sub("_", whole)
    if plain == whole and len(plain) <= _MAX_NAME_CHARS and "__" not in f"{server_label}_":
        return plain
    unique = hashlib.sha256(whole.encode()).hexdigest()[:_HASH_CHARS]
    return f"{plain[: _MAX_NAME_CHARS - _HASH_CHARS - 1]}_{unique}"


def short_name(server_label: str, function: str) -> str:
    """Return the name of a remote server's function without the server, unless it has a hash."""
    return function.removeprefix(f"{server_label}__")


def declined(response: Item) -> str:
    """Return the output for the model of a call that the user declined."""
    reason = response.get("reason")
    return f"{_DECLINED} The reason: {reason}" if reason else _DECLINED


def approved_requests(items: Sequence[Item]) -> list[Item]:
    """Return the requests that were approved since the model's last item; earlier ones have been carried out."""
    approved: list[str] = []
    for item in reversed(items):
        if item["type"] == "mcp_approval_response":
            approved += [item["approval_request_id"]] if item["approve"] else []
        elif item["type"] not in _NOT_THE_MODELS and not (item["type"] == "message" and item["role"] != "assistant"):
            break
    requests = {item["id"]: item for item in items if item["type"] == "mcp_approval_request"}
    return [requests[request_id] for request_id in dict.fromkeys(reversed(approved)) if request_id in requests]


def check_approvals(items: Sequence[Item], server_labels: Collection[str | None]) -> None:
    """Raise BadRequest if the server of an approved call is not among the tools."""
    for request in approved_requests(items):
        label = request["server_label"]
        if label not in server_labels:
            raise BadRequest(
                f"The approval request {shorten(request['id'])} is for the MCP server '{shorten(label)}', which is "
                "not among the tools. Send that server in 'tools' again.",
                param="tools",
                code="invalid_value",
            )
