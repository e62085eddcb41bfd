"""An independent reader of response streams: asserts that a stream is legal, and folds it to the response it tells.

Knows the order and the fields of the events from the interface alone; shares no code with what writes them.
"""

import re
from typing import Any

import orjson

TERMINAL = {"response.completed", "response.incomplete", "response.failed"}
KEYS = {
    "id", "object", "created_at", "completed_at", "status", "background", "error", "incomplete_details",
    "instructions", "max_output_tokens", "max_tool_calls", "model", "output", "parallel_tool_calls",
    "previous_response_id", "prompt_cache_key", "reasoning", "safety_identifier", "service_tier", "store",
    "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "presence_penalty",
    "frequency_penalty", "truncation", "usage", "user", "metadata", "conversation",
}  # fmt: skip
MODELS_OWN = {"message", "reasoning", "function_call", "custom_tool_call"}
CALLS = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}
WITHOUT_STATUS = {"compaction", "mcp_list_tools", "mcp_approval_request"}
ORDERS = {
    "code_interpreter_call": r"in_progress (code\.delta )*code\.done (interpreting (completed )?)?",
    "mcp_call": r"in_progress (arguments\.delta )*arguments\.done ((completed|failed) )?",
    "web_search_call": r"(in_progress (searching (completed )?)?)?",
    "file_search_call": r"(in_progress (searching (completed )?)?)?",
    "shell_call": r"(command\.added (command\.delta )*command\.done )*",
    "shell_call_output": r"(content\.done )*",
    "tool_search_call": r"",
    "tool_search_output": r"",
    "mcp_list_tools": r"(in_progress ((completed|failed) )?)?",
}
_SUMMARY = "reasoning_summary"
PARTS = {
    "output_text": ("response.output_text", "text"),
    "refusal": ("response.refusal", "refusal"),
    "reasoning_text": ("response.reasoning_text", "text"),
}


def split(body: bytes) -> list[dict[str, Any]]:
    """Return the events of a whole stream of server-sent events, which must end with [DONE].

    Comments are left out: they fill pauses, which a slow machine makes.
    """
    frames = body.split(b"\n\n")
    assert frames[-2:] == [b"data: [DONE]", b""], frames[-3:]
    return [read_frame(frame) for frame in frames[:-2] if not frame.startswith(b":")]


def read_frame(frame: bytes) -> dict[str, Any]:
    first, second = frame.split(b"\n")
    assert first.startswith(b"event: ")
    assert second.startswith(b"data: ")
    event = orjson.loads(second.removeprefix(b"data: "))
    assert first == b"event: " + event["type"].encode()
    return event


def fold(events: list[dict[str, Any]], *, has_all_keys: bool = True) -> dict[str, Any]:
    """Return the final response of a stream; asserts that it is legal and that the response is what was streamed."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    assert kinds[0] == "response.created"
    start = 1 + (kinds[1] == "response.queued")
    is_begun = kinds[start] == "response.in_progress"
    assert is_begun or (start == 2 and kinds[2] in TERMINAL)  # Taken back while it was queued.
    for event in [*events[: start + is_begun], events[-1]]:
        assert not has_all_keys or set(event["response"]) == KEYS
    for event in events[: start + is_begun]:
        response = event["response"]
        assert response["output"] == []
        assert response["usage"] is None
        assert response["completed_at"] is None
    assert kinds[-1] in TERMINAL
    rest = events[start + is_begun : -1]
    assert not TERMINAL & {event["type"] for event in rest}
    items: list[dict[str, Any]] = []
    while rest:
        item, rest = _item(rest, len(items))
        items.append(item)
    final = events[-1]["response"]
    _check_final(final, kinds[-1], items)
    assert len({item["id"] for item in items}) == len(items)
    return final


def _check_final(final: dict[str, Any], kind: str, items: list[dict[str, Any]]) -> None:
    assert final["output"] == items
    assert final["status"] in ({"incomplete", "cancelled"} if kind.endswith("incomplete") else {kind[9:]})
    assert (final["error"] is not None) == (final["status"] == "failed")
    assert (final["incomplete_details"] is not None) == (final["status"] == "incomplete")
    assert (final["completed_at"] is not None) == (final["status"] == "completed")
    usage = final["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    if final["status"] == "completed":
        assert all(item.get("status") != "incomplete" for item in items if item["type"] in MODELS_OWN)


def _item(events: list[dict[str, Any]], index: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the first item that events tell of, and the events after it."""
    added, *rest = events
    assert added["type"] == "response.output_item.added"
    assert added["output_index"] == index
    item = added["item"]
    has_status = item["type"] not in WITHOUT_STATUS
    assert item.get("status") == ("in_progress" if has_status else None)
    item_id = item["id"]
    end = next(n for n, event in enumerate(rest) if event["type"] == "response.output_item.done")
    inner, done, after = rest[:end], rest[end], rest[end + 1 :]
    for event in inner:
        assert event["item_id"] == item_id
        assert event["output_index"] == index
    assert done["output_index"] == index
    finished = done["item"]
    assert finished["id"] == item_id
    assert finished.get("status") in (("completed", "incomplete", "failed") if has_status else (None,))
    if item["type"] in ("message", "reasoning"):
        assert item["content"] == []
        told = {name: finished[name] for name in ("encrypted_content",) if name in finished}
        if item["type"] == "reasoning":
            assert item["summary"] == []
            told["summary"] = _summary([event for event in inner if _SUMMARY in event["type"]])
            inner = [event for event in inner if _SUMMARY not in event["type"]]
        assert finished == {**item, "content": _parts(inner), "status": finished["status"], **told}
    elif item["type"] in CALLS:
        kind, field = CALLS[item["type"]]
        assert item[field] == ""
        *deltas, last = inner
        assert all(event["type"] == f"{kind}.delta" for event in deltas)
        assert last["type"] == f"{kind}.done"
        assert last.get("name") == (item["name"] if item["type"] == "function_call" else None)
        assert last[field] == "".join(event["delta"] for event in deltas)
        assert finished == {**item, field: last[field], "status": finished["status"]}
    else:
        _check_tool(inner, finished)
    return finished, after


def _summary(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts of a summary that events tell of."""
    parts: list[dict[str, Any]] = []
    while events:
        assert events[0]["type"] == "response.reasoning_summary_part.added"
        assert events[0]["part"] == {"type": "summary_text", "text": ""}
        end = next(n for n, event in enumerate(events) if event["type"] == "response.reasoning_summary_part.done")
        *deltas, finished = events[1:end]
        assert {event["summary_index"] for event in events[: end + 1]} == {len(parts)}
        assert {event["type"] for event in deltas} == {"response.reasoning_summary_text.delta"}
        assert finished["type"] == "response.reasoning_summary_text.done"
        assert finished["text"] == "".join(event["delta"] for event in deltas)
        assert events[end]["part"] == {"type": "summary_text", "text": finished["text"]}
        parts.append(events[end]["part"])
        events = events[end + 1 :]
    return parts


def _check_tool(events: list[dict[str, Any]], finished: dict[str, Any]) -> None:
    """Assert that a tool's own events come in order, and tell what its item holds."""
    head = f"response.{finished['type']}"
    assert all(event["type"].startswith(head) for event in events)
    kinds = [event["type"].removeprefix(head)[1:] for event in events]
    order = ORDERS.get(finished["type"])
    assert order is None or re.fullmatch(order, "".join(f"{kind} " for kind in kinds)), kinds
    for field in ("code", "arguments"):
        if f"{field}.done" in kinds:
            assert events[kinds.index(f"{field}.done")][field] == finished[field]
            deltas = [event["delta"] for event, kind in zip(events, kinds, strict=True) if kind == f"{field}.delta"]
            assert all(deltas)
            assert "".join(deltas) == finished[field]


def _parts(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    while events:
        added = events[0]
        assert added["type"] == "response.content_part.added"
        end = next(n for n, event in enumerate(events) if event["type"] == "response.content_part.done")
        kind, field = PARTS[added["part"]["type"]]
        assert added["part"][field] == ""
        *deltas, finished = events[1:end]
        noted = [event for event in deltas if event["type"] == "response.output_text.annotation.added"]
        assert deltas[len(deltas) - len(noted) :] == noted
        deltas = deltas[: len(deltas) - len(noted)]
        for event in events[: end + 1]:
            assert event["content_index"] == len(parts)
        assert all(event["type"] == f"{kind}.delta" for event in deltas)
        assert finished["type"] == f"{kind}.done"
        assert finished[field] == "".join(event["delta"] for event in deltas)
        part = events[end]["part"]
        assert part[field] == finished[field]
        assert set(part) == set(added["part"])
        assert [event["annotation_index"] for event in noted] == list(range(len(noted)))
        assert [event["annotation"] for event in noted] == part.get("annotations", [])
        if kind == "response.output_text":
            assert finished["logprobs"] == [token for event in deltas for token in event["logprobs"]]
            assert [token["token"] for token in part["logprobs"]] == [t["token"] for t in finished["logprobs"]]
        parts.append(part)
        events = events[end + 1 :]
    return parts
