"""The operation behind POST /v1/responses.

A request is prepared (`prompt`), run (`run`), written as `events` and stored (`storage`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import orjson

from deployments.models.contract.engine import Engine, EngineStream
from deployments.models.contract.errors import EngineError
from deployments.models.contract.render import parse_events
from deployments.operations import Operation
from deployments.patience import USUAL, Patience
from deployments.state.identity.principal import Principal
from serve_app.errors.api import ApiError, BadRequest
from serve_app.errors.translate import translate_engine_error
from serve_app.operations.chat import ChatOperation
from serve_app.operations.contract import Cost, Outcome
from serve_app.operations.generation import cost_of
from serve_app.operations.responses.events.writer import Item, new_id, usage_to_wire
from serve_app.operations.responses.journal import EmittedEvents, Journal, JournaledEngine, RetryPolicy
from serve_app.operations.responses.prompt.compaction import SUMMARIZE, SUMMARY_TOKENS
from serve_app.operations.responses.prompt.configuration import configured
from serve_app.operations.responses.prompt.dialect import (
    GenerationChat,
    allowed_functions,
    check_chat,
    create_chat,
    create_chat_request,
    in_words_of,
    summary_chat,
)
from serve_app.operations.responses.prompt.history import Message
from serve_app.operations.responses.prompt.preparation import Preparation
from serve_app.operations.responses.prompt.turn import Turn
from serve_app.operations.responses.run.answer import ResponseAnswer
from serve_app.operations.responses.run.loop import ResponseRun
from serve_app.operations.responses.run.summary import STYLES
from serve_app.operations.responses.storage import Storage, items_of, without_opened_text
from serve_app.operations.responses.tools.contract import ToolBounds
from serve_app.schemas.base import estimate_tokens
from serve_app.schemas.responses.functions import ClientFunction, CustomTool, FunctionTool, GrammarFormat, functions_of
from serve_app.schemas.responses.items import AGENT_MESSAGE
from serve_app.schemas.responses.request import CompactRequest, InputTokensRequest, ResponseRequest
from serve_app.validation.body import Sent


class PromptQuery:
    """One generation that is not streamed. `text` is set once `run` has returned."""

    def __init__(self, own: Sequence[ClientFunction], stream: EngineStream, cost: Cost) -> None:
        self._own = own
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
            if isinstance(refusal, BadRequest):
                raise in_words_of(self._own, refusal) from None
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
        self, body: InputTokensRequest, sent: Sent, principal: Principal, *, request_id: str
    ) -> PromptQuery:
        """Return the query whose usage has the tokens of a prompt: the engine reads it and generates one token.

        The engine's tokenizer and chat template make this exact.

        Raises:
            ApiError: as `Preparation.begin` does.
        """
        engine = self._preparation.engine(body.model, principal)
        prompt = await self._preparation.reader.read(body, sent, principal)
        tools = await self._preparation.open_tools(body, prompt, principal)
        try:
            await tools.check()
            await tools.list_functions()
        finally:
            await tools.close()
        body = configured(body, prompt.items)
        own = allowed_functions(body, tools.client_functions())
        chat = create_chat(body, prompt.messages(body.instructions), own, tools.offered)
        return self._query(own, engine, chat, principal, request_id, max_tokens=1)

    async def summarize(
        self, body: CompactRequest, sent: Sent, principal: Principal, *, request_id: str
    ) -> tuple[PromptQuery, list[Item]]:
        """Return the query for a summary of a conversation, and its items. Raises as `count_tokens` does."""
        engine = self._preparation.engine(body.model, principal)
        prompt = await self._preparation.reader.read(body, sent, principal)
        messages: list[Message] = [*prompt.messages(body.instructions), {"role": "user", "content": SUMMARIZE}]
        chat = {"model": body.model, "messages": messages, "temperature": 0.0}
        return self._query((), engine, chat, principal, request_id, max_tokens=SUMMARY_TOKENS), prompt.items

    def _query(
        self,
        own: Sequence[ClientFunction],
        engine: Engine,
        chat: Item,
        principal: Principal,
        request_id: str,
        *,
        max_tokens: int,
    ) -> PromptQuery:
        chat = {**chat, "max_completion_tokens": max_tokens}
        body = check_chat(chat, own)
        stream = self._chat.run_as_events(engine, body, orjson.dumps(chat), principal, request_id=request_id)
        return PromptQuery(own, stream, cost_of(body, engine.card))

    async def compact(self, items: list[Item], summary: str, principal: Principal) -> list[Item]:
        """Return the items that replace a conversation: messages of the user and of agents, then the sealed summary."""
        tokens = await self._storage.sealer.of(principal.account)
        messages = [
            item
            for item in items
            if item["type"] == AGENT_MESSAGE or (item["type"] == "message" and item["role"] == "user")
        ]
        sealed = tokens.seal(summary)
        return [*messages, {"id": new_id("cmp"), "type": "compaction", "encrypted_content": sealed}]


class ResponseOperation:
    """Creates responses over a chat operation."""

    name: Final = Operation.RESPONSES
    schema = ResponseRequest

    def __init__(
        self, chat: ChatOperation, preparation: Preparation, storage: Storage, patience: Patience = USUAL
    ) -> None:
        self.storage = storage
        self._patience = patience
        self.queries = PromptQueries(chat, preparation, storage)
        self.preparation = preparation
        self._chat = chat
        self._bounds = ToolBounds()

    def cost(self, body: ResponseRequest, principal: Principal) -> Cost:
        """Return what the body's own input may take, without the conversation. Raises ApiError as `run` does."""
        card = self._engine_without_waiting(body, principal).card
        prompt_tokens = _estimate(body)
        most = max(1, card.max_model_len - prompt_tokens)
        return Cost(card.id, prompt_tokens, body.max_output_tokens, most)

    def run(
        self, body: ResponseRequest, raw: bytes, principal: Principal, *, request_id: str, priority: int = 0
    ) -> Outcome:
        """Return the answer to a body; the conversation that it continues is read when the answer is first iterated.

        If another try of the request has stored its response, that is the answer. Iterating raises ApiError as
        `Preparation.begin` does.

        Raises:
            ApiError: the key may not use the model, or the body asks for a background response.
        """
        self._engine_without_waiting(body, principal)

        async def prepare() -> ResponseRun:
            turn = await self.preparation.begin(
                body, Sent(raw, orjson.loads(raw)), principal, request_id=request_id, priority=priority, is_batch=True
            )
            return self.start(turn)

        find_stored = partial(self.preparation.find_stored, body, principal, request_id)
        answer = ResponseAnswer(prepare, self.storage.responses, is_stream=body.is_stream, find_stored=find_stored)
        return Outcome(answer, body.is_stream)

    def _engine_without_waiting(self, body: ResponseRequest, principal: Principal) -> Engine:
        engine = self.preparation.engine(body.model, principal)
        if body.background:
            raise BadRequest(
                "Background responses are not available here. Leave 'background' out.",
                param="background",
                code="unsupported_value",
            )
        return engine

    def first_chat(self, turn: Turn) -> GenerationChat:
        """Return the chat of the first generation. Raises BadRequest if the model does not support the request."""
        if turn.compaction is not None and turn.compaction.is_due(turn.messages):
            return summary_chat(turn, turn.messages)
        chat = create_chat_request(turn, turn.messages, turn.tools.offered)
        self._chat.check_moderation(chat.body, turn.engine.card)
        return chat

    def cost_of_turn(self, turn: Turn, chat: GenerationChat) -> Cost:
        """Return what a response may take, including the conversation that it continues and summaries."""
        cost, most = cost_of(chat.body, turn.engine.card), turn.request.max_output_tokens
        compaction, more = turn.compaction, 0
        if compaction is not None and compaction.is_whole_response:
            return cost
        if compaction is not None and compaction.is_due(turn.messages):
            more = SUMMARY_TOKENS
        if turn.request.reasoning_summary is not None:
            reasoning = min(most or cost.max_completion_tokens, cost.max_completion_tokens)
            more += STYLES[turn.request.reasoning_summary].most_tokens(reasoning, turn.engine.card.max_model_len)
        return replace(
            cost,
            completion_tokens=None if most is None else most + more,
            max_completion_tokens=cost.max_completion_tokens + more,
        )

    def start(self, turn: Turn, chat: GenerationChat | None = None) -> ResponseRun:
        """Return the run of a response, not begun yet; `chat` is that of its first generation, if there is one."""
        return ResponseRun(turn, self._chat, self._bounds, self.storage.clock, chat, patience=self._patience)

    def start_journaled(
        self, turn: Turn, journal: Journal, retries: RetryPolicy, emitted: EmittedEvents | None = None
    ) -> ResponseRun:
        """Return a run that another process can continue; it continues after the `emitted` events."""
        turn = replace(turn, engine=JournaledEngine(turn.engine, journal, retries))
        run = (turn, self._chat, self._bounds, self.storage.clock)
        return ResponseRun(*run, journal=journal, emitted=emitted, patience=self._patience)

    def answer(self, turn: Turn, chat: GenerationChat | None, on_failure: Callable[[], None]) -> ResponseAnswer:
        """Return the answer to a response that runs in the foreground; `on_failure` is called if it fails."""

        async def prepare() -> ResponseRun:
            return self.start(turn, chat)

        return ResponseAnswer(
            prepare,
            self.storage.responses,
            is_stream=turn.request.is_stream,
            on_failure=on_failure,
            begins_s=self._patience.response_begins_s,
        )

    async def read_items(self, items: Sequence[Item], principal: Principal, param: str) -> list[Item]:
        """Return new items of a conversation in stored form; `param` names them in errors.

        Raises:
            ApiError: an item refers to a missing one.
        """
        return without_opened_text(await self.preparation.reader.resolve(principal, items_of(items), param))


def _estimate(body: ResponseRequest) -> int:
    """Return about how many tokens the request's own input takes."""
    texts = [body.instructions or "", body.input] if isinstance(body.input, str) else [body.instructions or ""]
    if isinstance(body.input, list):
        texts += [item.model_dump_json(exclude_none=True) for item in body.input]
    texts += [_text_of_tool(function.tool) for function in functions_of(body.tools) if not function.is_deferred]
    return estimate_tokens(text for text in texts if text)


def _text_of_tool(tool: FunctionTool | CustomTool) -> str:
    if isinstance(tool, CustomTool):
        return tool.format.definition if isinstance(tool.format, GrammarFormat) else ""
    return orjson.dumps(tool.parameters).decode()
