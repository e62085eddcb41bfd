"""A response's stream, once more: the whole of a finished one, or as far as an unfinished one got, for its end."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import orjson

from deployments.models.contract.engine import Usage
from deployments.models.contract.events import Logprobs, TextDelta, ToolArgumentsDelta, ToolCallStart
from deployments.state.responses.values import StoredTurn
from serve_app.operations.responses.events.items import Status, TextKind
from serve_app.operations.responses.events.new_items import RecordedItems
from serve_app.operations.responses.events.state import ResponseState, Said
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.responses.events.written_call import FieldInWriting
from serve_app.operations.responses.resume.journal import EmittedEvents
from serve_app.schemas.responses.built_in_tools import BUILT_IN_ITEMS

_KINDS: dict[str, TextKind] = {"output_text": "text", "refusal": "refusal", "reasoning_text": "reasoning"}
_PLACE = ("type", "sequence_number", "item_id", "output_index")
_NOT_YET: Item = {"status": "in_progress", "output": [], "usage": None, "completed_at": None}
_FINISHED_AS = {"max_output_tokens": "length", "content_filter": "content_filter"}


def replay(turn: StoredTurn) -> list[bytes]:
    """Return the events of a response that ran in the foreground, as they were streamed or would have been."""
    final = turn.response
    items = RecordedItems(
        [item for item in final["output"] if item["type"] in _READERS],
        [item["encrypted_content"] for item in final["output"] if "encrypted_content" in item],
    )
    begun = {**final, **_NOT_YET, "error": None, "incomplete_details": None}
    state = ResponseState(begun, items, clock=lambda: final["completed_at"] or 0)
    annotations = [part["annotations"] for part in _texts_of(final["output"])]
    state.use_tools({}, cite=lambda _: annotations.pop(0), follow=lambda _: None)
    events = state.begin()
    for item, cuts in zip(final["output"], turn.cuts, strict=True):
        if _said_nothing(item, cuts):
            continue  # The end makes it.
        events += _replay_tool(state, item, cuts) if item["type"] not in _READERS else _replay_item(state, item, cuts)
    state.usage = _usage_of(final["usage"])
    return events + _end(state, final)


def reopen(response: Item, events: Sequence[bytes]) -> ResponseState:
    """Return the state in which a response was that began with these events, as far as they tell: enough to end it."""
    told = [orjson.loads(event) for event in events]
    state = ResponseState(response, EmittedEvents(events).items())
    state.begin(queued=bool(response["background"]))
    for event in told:
        _REOPENERS.get(event["type"], _reopen_tool)(state, event)
    state.continue_at(len(events))
    return state


_WRITTEN = {kind: item.written for kind, item in BUILT_IN_ITEMS.items() if item.written is not None}
"""What events show of calls while the model writes them, and the field that has the whole of it."""


def _reopen_tool(state: ResponseState, event: Item) -> None:
    opened = state.opened_tool
    if opened is None:
        return
    kind = event["type"]
    written = _WRITTEN.get(opened.item["type"])
    if written is not None and kind == f"{written[0]}.delta":
        opened.write(event["delta"])
    elif written is not None and kind == f"{written[0]}.done":
        opened.end_writing()
    else:
        opened.write_event(kind, **{name: value for name, value in event.items() if name not in _PLACE})


def _reopen_end(state: ResponseState, event: Item) -> Any:
    item = event["item"]
    if state.opened_tool is not None:
        state.opened_tool.finish(item)
    return state.close_item(item.get("status", "completed"))


def _reopen_text(kind: TextKind) -> Callable[[ResponseState, Item], Any]:
    def take(state: ResponseState, event: Item) -> Any:
        tokens = event.get("logprobs")
        said: list[Said] = [TextDelta(cast(Any, kind), 0, event["delta"])]
        return state.take([*said, Logprobs("logprobs", 0, tokens)] if tokens else said)

    return take


def _reopen_item(state: ResponseState, event: Item) -> Any:
    item = event["item"]
    if item["type"] == "function_call":
        return state.take([ToolCallStart("tool_call", 0, event["output_index"], item["call_id"], item["name"])])
    if item["type"] in _READERS:
        return None
    return state.open_tool(item, FieldInWriting(item, *_WRITTEN[item["type"]]) if item["type"] in _WRITTEN else None)


_REOPENERS: dict[str, Callable[[ResponseState, Item], Any]] = {
    "response.in_progress": lambda state, event: state.progress(),
    "response.output_item.added": _reopen_item,
    "response.output_text.delta": _reopen_text("text"),
    "response.refusal.delta": _reopen_text("refusal"),
    "response.reasoning_text.delta": _reopen_text("reasoning"),
    "response.function_call_arguments.delta": lambda state, event: state.take(
        [ToolArgumentsDelta("tool_arguments", 0, event["output_index"], event["delta"])]
    ),
    "response.output_item.done": _reopen_end,
}


def _replay_item(state: ResponseState, item: Item, cuts: list[Any]) -> list[bytes]:
    events = [event for said in _READERS[item["type"]](item, cuts) for event in state.take(said)]
    return events + state.close_item(cast(Status, item["status"]))


def _replay_tool(state: ResponseState, item: Item, cuts: list[Any]) -> list[bytes]:
    begun, *told = cuts
    opened, events = state.open_tool(dict(begun))
    for kind, fields in told:
        many = [{"delta": delta} for delta in fields] if isinstance(fields, list) else [fields]
        events += [opened.write_event(kind, **one) for one in many]
    opened.finish(item)
    return events + state.close_item()


def _read_text(item: Item, cuts: list[Any]) -> list[list[Said]]:
    told: list[list[Said]] = []
    for part, (lengths, *rest) in zip(item["content"], cuts, strict=True):
        kind = _KINDS[part["type"]]
        text = part["refusal"] if kind == "refusal" else part["text"]
        counts = rest[0] if rest else [0] * len(lengths)
        start = first = 0
        for length, count in zip(lengths, counts, strict=True):
            said: list[Said] = [TextDelta(cast(Any, kind), 0, text[start : start + length])]
            if count:
                said.append(Logprobs("logprobs", 0, part["logprobs"][first : first + count]))
            told.append(said)
            start, first = start + length, first + count
    return told


def _read_call(item: Item, cuts: list[Any]) -> list[list[Said]]:
    told: list[list[Said]] = [[ToolCallStart("tool_call", 0, 0, item["call_id"], item["name"])]]
    start = 0
    for length in cuts:
        told.append([ToolArgumentsDelta("tool_arguments", 0, 0, item["arguments"][start : start + length])])
        start += length
    return told


_READERS = {"message": _read_text, "reasoning": _read_text, "function_call": _read_call}


def _texts_of(items: Sequence[Item]) -> list[Item]:
    """Return the texts that a model has written, in order."""
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    return [part for part in parts if part["type"] == "output_text"]


def _said_nothing(item: Item, cuts: list[Any]) -> bool:
    return item["type"] == "message" and cuts == [[[]]]


def _end(state: ResponseState, final: Item) -> list[bytes]:
    match final["status"]:
        case "failed":
            return state.fail(final["error"]["code"], final["error"]["message"])
        case "cancelled":
            return state.cancel()
        case "incomplete":
            state.finish_reason = _FINISHED_AS[final["incomplete_details"]["reason"]]
        case _ if not final["output"]:
            return state.end_without_output()
        case _:
            state.finish_reason = "stop"
    return state.end()


def _usage_of(told: Item) -> Usage:
    return Usage(
        prompt_tokens=told["input_tokens"],
        completion_tokens=told["output_tokens"],
        cached_tokens=told["input_tokens_details"]["cached_tokens"],
        reasoning_tokens=told["output_tokens_details"]["reasoning_tokens"],
    )
