"""From the events of a chat to an answer in Anthropic's dialect: a stream of its events, or one message.

message_start, (content_block_start, content_block_delta ..., content_block_stop) ..., message_delta, message_stop
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import orjson

from deployments.models.contract.engine import EngineStream, Usage
from deployments.models.contract.events import Event
from deployments.models.contract.render import parse_events
from serve_app.operations.contract import GeneratedStream

Json = dict[str, Any]

_STOPPED = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_SIGNATURE = "unsigned"
"""Clients send it back with the reasoning. What the model reasoned is not checked, so it says nothing."""
_DELTAS = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}


class MessageBlocks:
    """The blocks of a message while they are written: events of the engine go in, events of the dialect come out.

    `names` has the tools' names by those that the model calls. `shows_thinking` says whether the client reads the
    reasoning, or only that there was some.
    """

    def __init__(self, names: Mapping[str, str], *, shows_thinking: bool) -> None:
        self.blocks: list[Json] = []
        self.stop_reason = "end_turn"
        self.stop_sequence: str | None = None
        self._names = names
        self._shows_thinking = shows_thinking
        self._is_open = False
        self._pieces: list[str] = []

    def take(self, event: Event) -> list[Json]:
        """Return the events that one of the engine causes."""
        match event.kind:
            case "text" if event.text:
                return self._write("text", event.text)
            case "reasoning" if event.text:
                return self._write("thinking", event.text)
            case "tool_call":
                name = self._names.get(event.name, event.name)
                return self._begin({"type": "tool_use", "id": event.id, "name": name, "input": {}})
            case "tool_arguments" if self._is_open and event.text:
                self._pieces.append(event.text)
                return [self._delta("input_json_delta", partial_json=event.text)]
            case "finished":
                self.stop_reason = _STOPPED[event.reason] if event.stop is None else "stop_sequence"
                self.stop_sequence = event.stop
        return []

    def end(self) -> list[Json]:
        """Return the events that end the open block, if there is one."""
        if not self._is_open:
            return []
        self._is_open, pieces, self._pieces = False, self._pieces, []
        block, written = self.blocks[-1], "".join(pieces)
        events = []
        if block["type"] == "tool_use":
            block["input"] = _parsed(written)
        elif block["type"] == "text":
            block["text"] = written
        else:
            block |= {"thinking": written if self._shows_thinking else "", "signature": _SIGNATURE}
            events.append(self._delta("signature_delta", signature=_SIGNATURE))
        return [*events, {"type": "content_block_stop", "index": len(self.blocks) - 1}]

    def _write(self, kind: str, text: str) -> list[Json]:
        events = []
        if not self._is_open or self.blocks[-1]["type"] != kind:
            begun = {"type": kind, kind: "", **({"signature": ""} if kind == "thinking" else {})}
            events = self._begin(begun)
        self._pieces.append(text)
        if kind == "text" or self._shows_thinking:
            name, field = _DELTAS[kind]
            events.append(self._delta(name, **{field: text}))
        return events

    def _begin(self, block: Json) -> list[Json]:
        ended = self.end()
        self._is_open = True
        self.blocks.append(block)
        return [*ended, {"type": "content_block_start", "index": len(self.blocks) - 1, "content_block": dict(block)}]

    def _delta(self, kind: str, **fields: str) -> Json:
        return {"type": "content_block_delta", "index": len(self.blocks) - 1, "delta": {"type": kind, **fields}}


class MessageStream(GeneratedStream):
    """The answer to a request in Anthropic's dialect, over the stream of its chat.

    Iterating raises EngineError as the chat's stream does.
    """

    def __init__(self, chat: EngineStream, blocks: MessageBlocks, head: Json, *, is_stream: bool) -> None:
        super().__init__()
        self._chat = chat
        self.summary = chat.summary
        self._blocks = blocks
        self._head = head
        self._is_stream = is_stream

    async def _generate(self) -> AsyncGenerator[bytes]:
        has_begun = False
        try:
            async for piece in self._chat:
                events = [told for event in parse_events(piece) for told in self._blocks.take(event)]
                if self._is_stream and not has_begun:
                    has_begun = True
                    events.insert(0, {"type": "message_start", "message": self._message(Usage())})
                if self._is_stream and events:
                    yield b"".join(map(frame, events))
        finally:
            await self._chat.aclose()
        ended = self._blocks.end()
        usage = self.summary.usage or Usage()
        if not self._is_stream:
            yield orjson.dumps(self._message(usage) | self._stopped() | {"content": self._blocks.blocks})
            return
        ended.append({"type": "message_delta", "delta": self._stopped(), "usage": usage_to_wire(usage)})
        yield b"".join(map(frame, [*ended, {"type": "message_stop"}]))

    def _message(self, usage: Usage) -> Json:
        begun: Json = {"content": [], "stop_reason": None, "stop_sequence": None}
        return {**self._head, **begun, "usage": usage_to_wire(usage)}

    def _stopped(self) -> Json:
        return {"stop_reason": self._blocks.stop_reason, "stop_sequence": self._blocks.stop_sequence}


def usage_to_wire(usage: Usage) -> Json:
    """Return the tokens of an answer. `input_tokens` are those that were not in the cache."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def frame(event: Json) -> bytes:
    """Return an event as a server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))


def _parsed(arguments: str) -> Json:
    """Return the arguments of a call; of a text that is no JSON object, which a model may write, the text."""
    try:
        value = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}
