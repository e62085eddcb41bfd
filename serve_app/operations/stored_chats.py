"""Stores chat completions that ask for it, before the client sees that they have ended."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from deployments.models.contract.engine import EngineStream, Usage
from deployments.models.contract.events import (
    Event,
    Finished,
    Logprobs,
    ReasoningDelta,
    TextDelta,
    TokenIds,
    ToolArgumentsDelta,
    ToolCallStart,
)
from deployments.models.contract.render import ChatBody, parse_events
from deployments.state.disk import ReserveReached
from deployments.state.identity.principal import Principal
from deployments.state.quotas import TooManyItems
from deployments.state.responses.chats import StoredChat
from deployments.state.responses.values import MAX_READ_BYTES
from deployments.steps import STORAGE, step
from deployments.waiting import finish
from serve_app.errors.capacity import StoresAway
from serve_app.operations.chat import ChatOperation
from serve_app.operations.contract import GeneratedStream
from serve_app.operations.responses.storage import Storage
from serve_app.schemas.chat import ChatRequest
from serve_app.telemetry.log import log_bug

_NOT_STORED = "The chat completion was generated, but could not be stored. Please retry your request."
_SHOWN: Final = (
    "frequency_penalty",
    "presence_penalty",
    "response_format",
    "seed",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
)
"""Fields of a request that a stored chat completion shows, where the request had them."""
_OF_CHUNKS: Final = frozenset(
    {"id", "object", "created", "model", "service_tier", "system_fingerprint", "choices", "usage"}
)


@dataclass(frozen=True, slots=True)
class Keeping:
    """What a stored chat completion is stored with: its request, and until when.

    `raw` is what `body` came from. `events_of` names the model if the pieces of the answer are for `parse_events`.
    """

    body: ChatRequest
    raw: bytes
    principal: Principal
    request_id: str
    expires_at: float
    events_of: str | None

    @property
    def is_asked_for(self) -> bool:
        """Whether the request asks for it; otherwise the key does, and its answers do not depend on it."""
        return bool(self.body.store)


class ChatKeeper:
    """Keeps chats in a storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def keep(
        self,
        stream: EngineStream,
        body: ChatRequest,
        raw: bytes,
        principal: Principal,
        request_id: str,
        events_of: str | None = None,
    ) -> EngineStream:
        """Return an answer that is stored; the answer itself if the request and the key do not ask for that."""
        wants = principal.logs_chats if body.store is None else body.store
        expires_at = self._storage.expires_at(principal) if wants else None
        if expires_at is None:
            return stream
        return KeptStream(stream, Keeping(body, raw, principal, request_id, expires_at, events_of), self._storage)


class KeptStream(GeneratedStream):
    """The answer to a chat, which is stored before its end is passed on.

    Raises:
        TooManyItems, ReserveReached: there is no room to store it; before the first piece.
        StoresAway: it could not be stored.
    """

    def __init__(self, stream: EngineStream, keeping: Keeping, storage: Storage) -> None:
        super().__init__()
        self.summary = stream.summary
        self._stream = stream
        self._keeping = keeping
        self._storage = storage
        self._answer: list[bytes] = []

    async def _generate(self) -> AsyncGenerator[bytes]:
        has_room = await self._has_room()
        end: list[bytes] = []
        try:
            async for piece in self._stream:
                if has_room:
                    self._answer.append(piece)
                if self._stream.summary.usage is None:
                    yield piece
                else:
                    end.append(piece)
        finally:
            self.summary = self._stream.summary
        if has_room:
            with step(STORAGE):
                await finish(self._keep())
        for piece in end:
            yield piece

    async def _has_room(self) -> bool:
        """Return whether it may be stored; it is then, even if the room ends meanwhile."""
        keeping = self._keeping
        try:
            await self._storage.item_quota.check(keeping.principal, len(keeping.raw))
        except Exception as error:
            if keeping.is_asked_for:
                raise
            if not isinstance(error, TooManyItems | ReserveReached):
                log_bug(keeping.request_id, error)
            return False
        return True

    async def _keep(self) -> None:
        keeping = self._keeping
        try:
            chat = await asyncio.to_thread(stored_chat, keeping, self._answer, self.summary.usage or Usage())
            await self._storage.chats.save(keeping.principal.account, chat, expires_at=keeping.expires_at)
        except Exception as error:
            log_bug(keeping.request_id, error)
            if not keeping.is_asked_for:
                return
            raise StoresAway(_NOT_STORED) from None

    async def aclose(self) -> None:
        """Abort the generation if it still runs; nothing is stored then."""
        await super().aclose()
        await self._stream.aclose()
        self.summary = self._stream.summary


def stored_chat(keeping: Keeping, answer: Sequence[bytes], usage: Usage) -> StoredChat:
    """Return what is stored of a chat with the pieces of its answer; one too large to be read is without logprobs."""
    body, request = keeping.body, orjson.loads(keeping.raw)
    if keeping.events_of is not None:
        completion = _rendered(keeping, answer, usage)
    else:
        completion = _gathered(b"".join(answer), usage, body) if body.is_stream else orjson.loads(b"".join(answer))
    if sum(map(len, answer)) > MAX_READ_BYTES:
        for choice in completion["choices"]:
            choice["logprobs"] = None
    shown = {name: request[name] for name in _SHOWN if request.get(name) is not None}
    completion = {**shown, **completion, "request_id": keeping.request_id, "input_user": body.user}
    messages = [_message(f"{completion['id']}-{number}", message) for number, message in enumerate(request["messages"])]
    return StoredChat(completion, body.metadata or {}, messages)


def _message(message_id: str, message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of a request with an id; of one in parts, `content` is its text."""
    content = message.get("content")
    parts = content if isinstance(content, list) else None
    if parts is not None:
        content = "".join(part["text"] for part in parts if part.get("type") == "text") or None
    return {"name": None, "refusal": None, **message, "id": message_id, "content": content, "content_parts": parts}


def _rendered(keeping: Keeping, answer: Sequence[bytes], usage: Usage) -> dict[str, Any]:
    """Return the whole completion of an answer in events."""
    whole = ChatBody(ChatOperation.answer_id(keeping.request_id), keeping.events_of or "", int(time.time()))
    for piece in answer:
        whole.events(parse_events(piece))
    completion: dict[str, Any] = orjson.loads(whole.finish(usage))
    return completion


def _gathered(answer: bytes, usage: Usage, body: ChatRequest) -> dict[str, Any]:
    """Return the whole completion that a stream is the pieces of."""
    lines = (line.removeprefix(b"data: ") for line in answer.split(b"\n") if line.startswith(b"data: {"))
    chunks = [orjson.loads(line) for line in lines]
    head = chunks[0]
    shown: dict[str, Any] = {}
    for chunk in chunks:
        shown |= {name: value for name, value in chunk.items() if name not in _OF_CHUNKS}
    whole = ChatBody(
        head["id"],
        head["model"],
        head["created"],
        fingerprint=head.get("system_fingerprint"),
        service_tier=head.get("service_tier") or "default",
        shown=shown,
        has_functions=body.functions is not None,
    )
    for chunk in chunks:
        for choice in chunk["choices"]:
            whole.events(_events_of(choice))
    completion: dict[str, Any] = orjson.loads(whole.finish(usage))
    return completion


def _events_of(choice: dict[str, Any]) -> list[Event]:
    """Return the events that a choice of a chunk was rendered from."""
    index, delta = choice["index"], choice["delta"]
    events: list[Event] = []
    if delta.get("reasoning"):
        events.append(ReasoningDelta("reasoning", index, delta["reasoning"]))
    if delta.get("content"):
        events.append(TextDelta("text", index, delta["content"]))
    calls = delta.get("tool_calls") or []
    if "function_call" in delta:
        calls = [{"index": 0, "function": delta["function_call"]}]
    for call in calls:
        number, is_custom = call["index"], "custom" in call
        said, field = (call["custom"], "input") if is_custom else (call["function"], "arguments")
        if "name" in said:
            events.append(ToolCallStart("tool_call", index, number, call.get("id", ""), said["name"], is_custom))
        if said.get(field):
            events.append(ToolArgumentsDelta("tool_arguments", index, number, said[field]))
    if choice.get("logprobs"):
        events.append(Logprobs("logprobs", index, choice["logprobs"]["content"]))
    if choice.get("token_ids"):
        events.append(TokenIds("token_ids", index, choice["token_ids"]))
    if choice.get("finish_reason"):
        events.append(Finished("finished", index, choice["finish_reason"]))
    return events
