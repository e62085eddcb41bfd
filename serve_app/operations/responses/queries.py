"""The operations behind POST /v1/responses/input_tokens and /v1/responses/compact: one generation each.

Nothing is streamed or stored, and no tool is called.
"""

from typing import Final

import orjson

from deployments.models.contract.engine import Engine, EngineStream
from deployments.models.contract.errors import EngineError
from deployments.models.contract.render import parse_events
from deployments.state.identity.principal import Principal
from serve_app.errors.api import ApiError
from serve_app.errors.translate import translate_engine_error
from serve_app.operations.chat import ChatOperation
from serve_app.operations.contract import Cost
from serve_app.operations.generation import cost_of
from serve_app.operations.responses.events.writer import Item, new_id, usage_to_wire
from serve_app.operations.responses.prompt.dialect import check_chat, create_chat, in_words_of
from serve_app.operations.responses.prompt.history import Message
from serve_app.operations.responses.prompt.preparation import Preparation
from serve_app.operations.responses.storage import Storage
from serve_app.schemas.responses.request import CompactRequest, InputTokensRequest, PromptedRequest

_SUMMARIZE: Final = (
    "Summarize the conversation so far for whoever continues it: what was asked, what was found and decided, facts, "
    "names and numbers that are still needed, and what is left to do. Write only the summary."
)
_SUMMARY_TOKENS = 1024


class PromptQuery:
    """One generation that is not streamed. `text` is set once `run` has returned."""

    def __init__(self, request: PromptedRequest | None, stream: EngineStream, cost: Cost) -> None:
        self._request = request
        self.cost = cost
        self.stream = stream
        self.text = ""

    async def run(self) -> Item:
        """Run the generation; return its usage on the wire. Raises ApiError if the model refused or failed."""
        try:
            async for piece in self.stream:
                events = parse_events(piece) if piece else []
                self.text += "".join(event.text for event in events if event.kind == "text")
        except EngineError as error:
            refusal = translate_engine_error(error)
            if refusal.status == 400:
                raise in_words_of(self._request, refusal.message, refusal.param, refusal.code) from None
            raise refusal from None
        finally:
            await self.stream.aclose()
        usage = self.stream.summary.usage
        if usage is None:
            raise ApiError
        return usage_to_wire(usage)


class PromptQueries:
    """Counts the tokens of prompts, and compacts conversations."""

    def __init__(self, chat: ChatOperation, preparation: Preparation, storage: Storage) -> None:
        self._chat = chat
        self._preparation = preparation
        self._storage = storage

    async def count_tokens(
        self, body: InputTokensRequest, raw: bytes, principal: Principal, *, request_id: str
    ) -> PromptQuery:
        """Return the query whose usage has the tokens of a prompt: the engine reads it and generates one token.

        The engine's tokenizer and chat template make this exact.

        Raises:
            ApiError: as `Preparation.begin` does.
        """
        engine = self._preparation.engine(body.model, principal)
        prompt = await self._preparation.reader.read(body, raw, principal)
        tools = await self._preparation.open_tools(body, prompt, principal)
        try:
            await tools.check()
            await tools.list_functions()
        finally:
            await tools.close()
        chat = create_chat(body, prompt.messages(body.instructions), tools.offered)
        return self._query(body, engine, chat, principal, request_id, max_tokens=1)

    async def summarize(
        self, body: CompactRequest, raw: bytes, principal: Principal, *, request_id: str
    ) -> tuple[PromptQuery, list[Item]]:
        """Return the query for a summary of a conversation, and its items. Raises as `count_tokens` does."""
        engine = self._preparation.engine(body.model, principal)
        prompt = await self._preparation.reader.read(body, raw, principal)
        messages: list[Message] = [*prompt.messages(body.instructions), {"role": "user", "content": _SUMMARIZE}]
        chat = {"model": body.model, "messages": messages, "temperature": 0.0}
        return self._query(None, engine, chat, principal, request_id, max_tokens=_SUMMARY_TOKENS), prompt.items

    def _query(
        self,
        request: PromptedRequest | None,
        engine: Engine,
        chat: Item,
        principal: Principal,
        request_id: str,
        *,
        max_tokens: int,
    ) -> PromptQuery:
        chat = {**chat, "max_completion_tokens": max_tokens}
        body = check_chat(chat, request)
        stream = self._chat.run_as_events(engine, body, orjson.dumps(chat), principal, request_id=request_id)
        return PromptQuery(request, stream, cost_of(body, engine.card))

    async def compact(self, items: list[Item], summary: str, principal: Principal) -> list[Item]:
        """Return the items that replace a conversation: the user's messages, then the sealed summary."""
        tokens = await self._storage.sealer.of(principal.account)
        messages = [item for item in items if item["type"] == "message" and item["role"] == "user"]
        sealed = tokens.seal(summary)
        return [*messages, {"id": new_id("cmp"), "type": "compaction", "encrypted_content": sealed}]
