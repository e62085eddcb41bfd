"""Rebuilds streams of stored responses.

`replay` returns the whole stream of a finished response. `reopen` restores the state of an unfinished one from its
events, so that it can be ended.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import orjson

from deployments.models.contract.events import (
    Event,
    Logprobs,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStart,
)
from deployments.state.responses.values import StoredTurn
from serve_app.operations.responses.events.items import CALLS, MODELS_OWN, RecordedItems, Status
from serve_app.operations.responses.events.server_call import FieldInWriting
from serve_app.operations.responses.events.state import ResponseState
from serve_app.operations.responses.events.writer import Item, type_of, usage_from_wire
from serve_app.operations.responses.journal import EmittedEvents
from serve_app.schemas.responses.tools import BUILT_IN_ITEMS
from serve_app.schemas.tools import called_name

_PLACE = ("type", "sequence_number", "item_id", "output_index")
_NOT_YET: Item = {"status": "in_progress", "output": [], "usage": None, "completed_at": None}
_FINISHED_AS = {"max_output_tokens": "length", "content_filter": "content_filter"}


def replay(turn: StoredTurn) -> list[bytes]:
    """Return the events of a foreground response, as they were streamed or would have been."""
    final = turn.response
    items = RecordedItems(
        [item for item in final["output"] if item["type"] in MODELS_OWN],
        [item["encrypted_content"] for item in final["output"] if "encrypted_content" in item],
    )
    begun = {**final, **_NOT_YET, "error": None, "incomplete_details": None}
    shows = all(item["content"] for item in final["output"] if item["type"] == "reasoning")
    state = ResponseState(begun, items, clock=lambda: final["completed_at"] or 0, shows_reasoning=shows)
    annotations = [part["annotations"] for part in _texts_of(final["output"])]
    state.use_tools({}, cite=lambda _: annotations.pop(0), follow=lambda _: None)
    state.use_functions(_namespaces_of(final["output"]))
    events = state.begin()
    for item, cuts in zip(final["output"], turn.cuts, strict=True):
        if _is_silence(item, cuts):
            continue  # `_end` adds it.
        events += _REPLAYERS.get(item["type"], _replay_tool)(state, item, cuts)
    state.usage = usage_from_wire(final["usage"])
    return events + _end(state, final)


def reopen(response: Item, events: Sequence[bytes]) -> ResponseState:
    """Return the state of a response after these events, complete enough to end it."""
    shows = any(type_of(event) == b"response.reasoning_text.delta" for event in events)
    state = ResponseState(response, EmittedEvents(events).items(), shows_reasoning=shows)
    state.begin(queued=bool(response["background"]))
    read = [orjson.loads(event) for event in events]
    state.use_functions(_namespaces_of(event["item"] for event in read if "item" in event))
    for event in read:
        _REOPENERS.get(event["type"], _reopen_tool)(state, event)
    state.continue_at(len(events))
    return state


_WRITTEN = {kind: item.written for kind, item in BUILT_IN_ITEMS.items() if item.written is not None}
"""By type, the event of calls that are shown while the model writes them, and their field."""


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


def _reopen_text(state: ResponseState, event: Item) -> Any:
    tokens = event.get("logprobs")
    deltas: list[Event] = [TextDelta("text", 0, event["delta"])]
    return state.take([*deltas, Logprobs("logprobs", 0, tokens)] if tokens else deltas)


def _reopen_item(state: ResponseState, event: Item) -> Any:
    item = event["item"]
    if item["type"] in CALLS:
        return state.take([_start(item, event["output_index"])])
    if item["type"] == "reasoning":
        return state.open_reasoning()
    if item["type"] == "message":
        return None
    return state.open_tool(item, FieldInWriting(item, *_WRITTEN[item["type"]]) if item["type"] in _WRITTEN else None)


_REOPENERS: dict[str, Callable[[ResponseState, Item], Any]] = {
    "response.in_progress": lambda state, event: state.progress(),
    "response.output_item.added": _reopen_item,
    "response.output_text.delta": _reopen_text,
    "response.reasoning_text.delta": lambda state, event: state.take([ReasoningDelta("reasoning", 0, event["delta"])]),
    "response.reasoning_summary_text.delta": lambda state, event: state.open_reasoning()[1].summarize(event["delta"]),
    "response.reasoning_summary_part.done": lambda state, event: state.open_reasoning()[1].end_part(),
    **{
        f"{name}.delta": lambda state, event: state.take(
            [ToolArgumentsDelta("tool_arguments", 0, event["output_index"], event["delta"])]
        )
        for _, name, _ in CALLS.values()
    },
    "response.output_item.done": _reopen_end,
}


def _replay_item(state: ResponseState, item: Item, cuts: list[Any]) -> list[bytes]:
    events = [event for piece in _READERS[item["type"]](item, cuts) for event in state.take(piece)]
    return events + state.close_item(cast(Status, item["status"]))


def _replay_reasoning(state: ResponseState, item: Item, cuts: list[Any]) -> list[bytes]:
    ((lengths, *rest),) = cuts
    events, opened = state.open_reasoning()
    text = "".join(part["text"] for part in item["content"])
    deltas, shown = list(_cut(text, lengths)), 0
    for (num_before, pieces), part in zip(rest[0] if rest else [], item["summary"], strict=True):
        events += [event for delta in deltas[shown:num_before] for event in opened.delta(delta)]
        events += [event for piece in _cut(part["text"], pieces) for event in opened.summarize(piece)]
        events += opened.end_part()
        shown = num_before
    events += [event for delta in deltas[shown:] for event in opened.delta(delta)]
    return events + state.close_item(cast(Status, item["status"]))


def _replay_tool(state: ResponseState, item: Item, cuts: list[Any]) -> list[bytes]:
    begun, *own_events = cuts
    opened, events = state.open_tool(dict(begun))
    for kind, fields in own_events:
        many = [{"delta": delta} for delta in fields] if isinstance(fields, list) else [fields]
        events += [opened.write_event(kind, **one) for one in many]
    opened.finish(item)
    return events + state.close_item()


def _read_message(item: Item, cuts: list[Any]) -> Iterable[list[Event]]:
    (part,), ((lengths, *rest),) = item["content"], cuts
    counts = rest[0] if rest else [0] * len(lengths)
    tokens = _cut(part["logprobs"], counts)
    for text, some in zip(_cut(part["text"], lengths), tokens, strict=True):
        delta = TextDelta("text", 0, text)
        yield [delta, Logprobs("logprobs", 0, some)] if some else [delta]


def _read_call(item: Item, cuts: list[Any]) -> Iterable[list[Event]]:
    yield [_start(item, 0)]
    for text in _cut(item[CALLS[item["type"]][2]], cuts):
        yield [ToolArgumentsDelta("tool_arguments", 0, 0, text)]


def _namespaces_of(items: Iterable[Item]) -> dict[str, tuple[str, str]]:
    """Return the namespaces and the names of the tools that calls name, by their names for the model."""
    return {
        called_name(item["namespace"], item["name"]): (item["namespace"], item["name"])
        for item in items
        if item["type"] in CALLS and "namespace" in item
    }


def _start(item: Item, call: int) -> ToolCallStart:
    name = called_name(item.get("namespace"), item["name"])
    return ToolCallStart("tool_call", 0, call, item["call_id"], name, item["type"] == "custom_tool_call")


def _cut(whole: Any, lengths: Iterable[int]) -> Iterable[Any]:
    """Yield parts of a text or a list, each of the length given."""
    start = 0
    for length in lengths:
        yield whole[start : start + length]
        start += length


_READERS = {"message": _read_message, **dict.fromkeys(CALLS, _read_call)}
_REPLAYERS: dict[str, Callable[[ResponseState, Item, list[Any]], list[bytes]]] = {
    **dict.fromkeys(_READERS, _replay_item),
    "reasoning": _replay_reasoning,
}


def _texts_of(items: Sequence[Item]) -> list[Item]:
    return [part for item in items if item["type"] == "message" for part in item["content"]]


def _is_silence(item: Item, cuts: list[Any]) -> bool:
    """Whether an item is the empty message of a generation without output."""
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
