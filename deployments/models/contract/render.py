"""Renders an engine's events as OpenAI's bytes: server-sent chunks, or one JSON body.

Used by the model replica, and by operations that check text before they send it. A piece of text costs about a
microsecond, as the parts that all chunks share are rendered once.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import orjson

from deployments.models.contract.engine import ServiceTier, Usage
from deployments.models.contract.events import EVENT_TYPES, Event, Logprobs, TokenIds, ToolCallStart

DONE: Final = b"data: [DONE]\n\n"


class Renderer(Protocol):
    """Renders one answer."""

    def text(self, choice: int, text: str) -> bytes:
        """Return the bytes for more text of a choice, faster than with a `TextDelta`."""

    def events(self, events: Sequence[Event]) -> bytes:
        """Return the bytes for events, which may be none."""

    def finish(self, usage: Usage) -> bytes:
        """Return the last bytes of the answer."""


def usage_to_wire(usage: Usage) -> dict[str, Any]:
    """Return a chat completion's `usage` object."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


class ChatChunks:
    """Renders a streamed chat completion, in OpenAI's order.

    The first chunk of a choice carries the role and `shown`, the fields about the prompt that the client asked for.
    With `include_usage` a usage chunk comes last.
    """

    def __init__(
        self,
        completion_id: str,
        model: str,
        created: int,
        *,
        include_usage: bool,
        fingerprint: str | None = None,
        shown: dict[str, Any] | None = None,
        service_tier: ServiceTier = "default",
        has_functions: bool = False,
    ) -> None:
        self._has_functions = has_functions
        envelope = orjson.dumps(
            {
                "id": completion_id,
                "object": "chat.completion.chunk",
                "created": created,
                "model": model,
                "service_tier": service_tier,
                "system_fingerprint": fingerprint,
            }
        )
        self._envelope = b"data: " + envelope[:-1]
        self._head = self._envelope + b',"choices":[{"index":'
        self._tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._first_tail = self._tail
        self._text_end = b'},"logprobs":null,"finish_reason":null}]' + self._tail
        self._text_heads: dict[int, bytes] = {}
        self._custom: set[tuple[int, int]] = set()  # The calls of custom tools.
        self._include_usage = include_usage
        self._shown = b"," + orjson.dumps(shown)[1:-1] if shown else b""

    def count(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Put these numbers of tokens into the following chunks of the choice that is rendered next.

        The first chunk of a choice has no text, so it counts no token, as in vLLM.
        """
        self._first_tail = _counted(prompt_tokens, 0)
        self._tail = _counted(prompt_tokens, completion_tokens)
        self._text_end = b'},"logprobs":null,"finish_reason":null}]' + self._tail

    def text(self, choice: int, text: str) -> bytes:
        """Return the chunk for more text of a choice, after the choice's first chunk if this is the first text."""
        head = self._text_heads.get(choice)
        if head is not None:
            return head + orjson.dumps(text) + self._text_end
        return self._first(choice) + self._text_heads[choice] + orjson.dumps(text) + self._text_end

    def _first(self, choice: int) -> bytes:
        if choice in self._text_heads:
            return b""
        self._text_heads[choice] = self._head + str(choice).encode() + b',"delta":{"content":'
        delta = b'{"role":"assistant","content":"","refusal":null}'
        return self._chunk(choice, delta, rest=self._shown + self._first_tail)

    def _chunk(
        self,
        choice: int,
        delta: bytes,
        logprobs: bytes = b"null",
        finish_reason: bytes = b"null",
        token_ids: bytes = b"",
        rest: bytes | None = None,
    ) -> bytes:
        head = self._head + str(choice).encode() + b',"delta":' + delta + b',"logprobs":' + logprobs
        tail = self._tail if rest is None else rest
        return head + b',"finish_reason":' + finish_reason + token_ids + b"}]" + tail

    def events(self, events: Sequence[Event]) -> bytes:
        """Return the chunks for events."""
        return b"".join(map(self._event, _paired(events)))

    def _event(self, shown: "_Shown") -> bytes:
        event = shown.event
        first = self._first(event.choice)
        logprobs = b"null"
        if shown.logprobs is not None:
            logprobs = orjson.dumps({"content": shown.logprobs.content, "refusal": None})
        token_ids = b"" if shown.token_ids is None else b',"token_ids":' + orjson.dumps(shown.token_ids.token_ids)
        reason = orjson.dumps(_reason(event.reason, self._has_functions)) if event.kind == "finished" else b"null"
        return first + self._chunk(event.choice, self._delta(event), logprobs, reason, token_ids)

    def _delta(self, event: Event) -> bytes:
        if event.kind == "tool_call" and event.is_custom:
            self._custom.add((event.choice, event.call))
            custom = {"name": event.name, "input": ""}
            call = {"index": event.call, "id": event.id, "type": "custom", "custom": custom}
            return orjson.dumps({"tool_calls": [call]})
        if event.kind == "tool_arguments" and (event.choice, event.call) in self._custom:
            return orjson.dumps({"tool_calls": [{"index": event.call, "custom": {"input": event.text}}]})
        return _delta(event, self._has_functions)

    def finish(self, usage: Usage) -> bytes:
        """Return the usage chunk, if asked for, and the end of the stream."""
        if not self._include_usage:
            return DONE
        return self._envelope + b',"choices":[],"usage":' + orjson.dumps(usage_to_wire(usage)) + b"}\n\n" + DONE


def _counted(prompt_tokens: int, completion_tokens: int) -> bytes:
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    return b',"usage":' + orjson.dumps(usage) + b"}\n\n"


def _delta(event: Event, has_functions: bool) -> bytes:
    match event.kind:
        case "text":
            return orjson.dumps({"content": event.text})
        case "reasoning":
            return orjson.dumps(_reasoning(event.text))
        case "tool_call" if has_functions:
            return orjson.dumps({"function_call": {"name": event.name, "arguments": ""}})
        case "tool_arguments" if has_functions:
            return orjson.dumps({"function_call": {"arguments": event.text}})
        case "tool_call":
            function = {"name": event.name, "arguments": ""}
            call = {"index": event.call, "id": event.id, "type": "function", "function": function}
            return orjson.dumps({"tool_calls": [call]})
        case "tool_arguments":
            return orjson.dumps({"tool_calls": [{"index": event.call, "function": {"arguments": event.text}}]})
        case "logprobs" | "token_ids":
            return b'{"content":""}'
        case "finished":
            return b"{}"


def _reason(reason: str, has_functions: bool) -> str:
    return "function_call" if has_functions and reason == "tool_calls" else reason


def _reasoning(text: str) -> dict[str, str]:
    """Return reasoning under both names that clients read: vLLM's new one, and its old one, which is DeepSeek's."""
    return {"reasoning": text, "reasoning_content": text}


class ChatBody:
    """Renders a whole chat completion: collects the events, and returns the body at the end.

    `shown` are the fields about the prompt that the client asked for.
    """

    def __init__(
        self,
        completion_id: str,
        model: str,
        created: int,
        *,
        fingerprint: str | None = None,
        service_tier: ServiceTier = "default",
        shown: dict[str, Any] | None = None,
        has_functions: bool = False,
    ) -> None:
        self.shown = shown or {}
        self._has_functions = has_functions
        self._completion_id = completion_id
        self._model = model
        self._created = created
        self._fingerprint = fingerprint
        self._service_tier = service_tier
        self._choices: dict[int, _Choice] = {}

    def text(self, choice: int, text: str) -> bytes:
        """Collect more text of a choice; return nothing."""
        self._choice(choice).text.append(text)
        return b""

    def _choice(self, choice: int) -> "_Choice":
        return self._choices.setdefault(choice, _Choice())

    def events(self, events: Sequence[Event]) -> bytes:
        """Collect the events; return nothing."""
        for event in events:
            choice = self._choice(event.choice)
            match event.kind:
                case "text":
                    choice.text.append(event.text)
                case "reasoning":
                    choice.reasoning.append(event.text)
                case "tool_call":
                    choice.calls.append((event, []))
                case "tool_arguments":
                    choice.calls[event.call][1].append(event.text)
                case "logprobs":
                    choice.add_logprobs(event.content)
                case "token_ids":
                    choice.token_ids = choice.token_ids or []
                    choice.token_ids.extend(event.token_ids)
                case "finished":
                    choice.finish_reason = event.reason
        return b""

    def finish(self, usage: Usage) -> bytes:
        """Return the body."""
        return orjson.dumps(
            {
                "id": self._completion_id,
                "object": "chat.completion",
                "created": self._created,
                "model": self._model,
                "choices": [
                    choice.to_wire(index, self._has_functions) for index, choice in sorted(self._choices.items())
                ],
                "usage": usage_to_wire(usage),
                "service_tier": self._service_tier,
                "system_fingerprint": self._fingerprint,
                **self.shown,
            }
        )


class _Choice:
    """One completion of a chat body, while it is collected."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[tuple[ToolCallStart, list[str]]] = []
        self.logprobs: list[bytes] | None = None
        self.token_ids: list[int] | None = None
        self.finish_reason = "stop"

    def add_logprobs(self, content: list[dict[str, Any]]) -> None:
        """Keep them as JSON: 21 objects for each token would take five times the memory."""
        self.logprobs = self.logprobs or []
        if content:
            self.logprobs.append(orjson.dumps(content)[1:-1])

    def to_wire(self, index: int, has_functions: bool) -> dict[str, Any]:
        text = "".join(self.text)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if self.calls and not text else text,
            "refusal": None,
            "annotations": [],
        }
        if self.reasoning:
            message |= _reasoning("".join(self.reasoning))
        if self.calls and has_functions:
            start, arguments = self.calls[0]
            message["function_call"] = {"name": start.name, "arguments": "".join(arguments)}
        elif self.calls:
            message["tool_calls"] = [_call_to_wire(start, "".join(pieces)) for start, pieces in self.calls]
        logprobs = None
        if self.logprobs is not None:
            content = orjson.Fragment(b"[" + b",".join(self.logprobs) + b"]")
            logprobs = {"content": content, "refusal": None}
        reason = _reason(self.finish_reason, has_functions)
        choice = {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}
        return choice if self.token_ids is None else {**choice, "token_ids": self.token_ids}


def _call_to_wire(start: ToolCallStart, said: str) -> dict[str, Any]:
    kind, field = ("custom", "input") if start.is_custom else ("function", "arguments")
    return {"id": start.id, "type": kind, kind: {"name": start.name, field: said}}


class _Shown(NamedTuple):
    """An event, with the log probabilities and the tokens in its chunk."""

    event: Event
    logprobs: Logprobs | None = None
    token_ids: TokenIds | None = None


def _paired(events: Sequence[Event]) -> Iterable[_Shown]:
    """Pair each delta with the log probabilities and tokens that follow it; others stand alone."""
    last: _Shown | None = None
    for event in events:
        if last is not None and event.choice == last.event.choice:
            if isinstance(event, Logprobs) and last.logprobs is None and last.event.kind in ("text", "reasoning"):
                last = last._replace(logprobs=event)
                continue
            if isinstance(event, TokenIds) and last.token_ids is None:
                last = last._replace(token_ids=event)
                continue
        if last is not None:
            yield last
        logprobs = event if isinstance(event, Logprobs) else None
        last = _Shown(event, logprobs, event if isinstance(event, TokenIds) else None)
    if last is not None:
        yield last


class EventLines:
    """Renders events for another process instead of a client: one JSON array a piece."""

    def text(self, choice: int, text: str) -> bytes:
        """Return one text event."""
        return orjson.dumps([("text", choice, text)])

    def events(self, events: Sequence[Event]) -> bytes:
        """Return the events as one JSON array."""
        return orjson.dumps(events, default=tuple) if events else b""

    def finish(self, usage: Usage) -> bytes:
        """Return nothing: the end and the usage travel in the summary."""
        return b""


def parse_events(piece: bytes) -> list[Event]:
    """Return the events in a piece that `EventLines` rendered."""
    return [EVENT_TYPES[event[0]](*event) for event in orjson.loads(piece)]
