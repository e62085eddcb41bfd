"""Prepares a turn from a request: reads and checks the model, the prompt, the tools and the response object."""

from collections.abc import Callable, Sequence

from deployments.models.contract.engine import Engine, ModelCard, ModelDirectory, ServiceTier
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from deployments.state.responses.values import Item, StoredTurn
from serve_app.errors.api import RetentionForbids
from serve_app.operations.responses.events.writer import response_id_of
from serve_app.operations.responses.prompt.compaction import Compaction
from serve_app.operations.responses.prompt.configuration import configured
from serve_app.operations.responses.prompt.history import Message, drop_oldest_turns, message_tokens
from serve_app.operations.responses.prompt.outputs import without_tool_images
from serve_app.operations.responses.prompt.reading import Prompt, PromptReader, RememberedResponse
from serve_app.operations.responses.prompt.turn import Turn, create_response
from serve_app.operations.responses.storage import Storage
from serve_app.operations.responses.tools.contract import BuiltIns, ToolContext
from serve_app.operations.responses.tools.loading import placed_tools
from serve_app.operations.responses.tools.tool_set import ToolSet, open_tools
from serve_app.operations.routing import check_max_tokens, find_engine, unsupported_parameter
from serve_app.schemas.responses.request import PromptedRequest, ResponseRequest
from serve_app.validation.body import Sent

_COMPACTED_AT = 0.8
_SEALED_REASONING = "reasoning.encrypted_content"


class Preparation:
    """Prepares turns from requests."""

    def __init__(self, directory: ModelDirectory, storage: Storage, built_ins: BuiltIns | None = None) -> None:
        self.reader = PromptReader(storage)
        self._directory = directory
        self._storage = storage
        self._built_ins = built_ins or {}

    def engine(self, model: str, principal: Principal) -> Engine:
        """Return the engine of a model that offers responses. Raises ApiError as `find_engine` does."""
        return find_engine(self._directory, model, Operation.RESPONSES, principal)

    async def begin(
        self,
        request: ResponseRequest,
        sent: Sent,
        principal: Principal,
        *,
        request_id: str,
        priority: int = 0,
        service_tier: ServiceTier = "default",
        remembered: RememberedResponse | None = None,
        is_batch: bool = False,
    ) -> Turn:
        """Return a turn that can be run; `sent` is what the request was validated from.

        Raises:
            ApiError: the model, the key or something that the request refers to does not allow it.
            TooManyItems, ReserveReached: there is no room to store the response.
        """
        engine = self.engine(request.model, principal)
        check_max_tokens("max_output_tokens", request.max_output_tokens, engine.card)
        expires_at = self._storage.expires_at(principal)
        if request.background and expires_at is None:
            raise RetentionForbids("background responses, which must be stored", "background")
        if request.store is False:
            expires_at = None
        prompt = await self.reader.read(request, sent, principal, remembered)
        request = configured(request, prompt.items)
        messages = _fit(prompt.messages(request.instructions, may_wait=request.is_compaction), request, engine.card)
        tools = await self.open_tools(request, prompt, principal, is_batch=is_batch)
        if tools.has_tools and not engine.card.has_tools:
            raise unsupported_parameter("tools")
        if request.background:  # The client gets its object before the model is asked.
            await tools.check()
        if expires_at is not None:  # It is stored after its answer, even if the room ends meanwhile.
            await self._storage.item_quota.check(principal, len(sent.raw))
        response_id, created_at = response_id_of(request_id), int(self._storage.clock())
        response = create_response(request, response_id, engine.card.id, created_at, stored=expires_at is not None)
        response["service_tier"] = service_tier
        return Turn(
            request=request,
            response=response,
            input=prompt.own,
            before=prompt.before,
            messages=messages,
            engine=engine,
            principal=principal,
            request_id=request_id,
            expires_at=expires_at,
            is_stream=request.is_stream or bool(request.background),
            seal_reasoning=await self._seal(request, principal),
            priority=priority,
            service_tier=service_tier,
            tools=tools,
            compaction=await self._compaction(request, principal, engine.card),
        )

    async def _compaction(self, request: ResponseRequest, principal: Principal, card: ModelCard) -> Compaction | None:
        if request.is_compaction:
            threshold = None
        elif request.context_management:
            wanted = request.context_management[0].compact_threshold
            threshold = wanted or int(_COMPACTED_AT * card.max_model_len)
        else:
            return None
        return Compaction((await self._storage.sealer.of(principal.account)).seal, threshold)

    async def find_stored(self, request: ResponseRequest, principal: Principal, request_id: str) -> StoredTurn | None:
        """Return the stored response of another try of this request, if there is one."""
        if request.store is False or self._storage.expires_at(principal) is None:
            return None
        return await self._storage.responses.load(principal.account, response_id_of(request_id))

    async def resume(
        self,
        request: ResponseRequest,
        sent: Sent,
        principal: Principal,
        stored: StoredTurn,
        *,
        calls: Sequence[tuple[Item, str, str]],
        request_id: str,
    ) -> Turn:
        """Return a turn that another process began; `calls` are those that its tools have carried out.

        Raises:
            ApiError: its model, or the conversation that it continues, is gone.
        """
        engine = self.engine(stored.response["model"], principal)
        prompt = await self.reader.read(request, sent, principal)
        request = configured(request, prompt.items)
        messages = _fit(prompt.messages(request.instructions, may_wait=request.is_compaction), request, engine.card)
        tools = await self.open_tools(request, prompt, principal, calls=calls)
        await tools.check()
        return Turn(
            request=request,
            response=stored.response,
            input=stored.input,
            messages=messages,
            engine=engine,
            principal=principal,
            request_id=request_id,
            expires_at=self._storage.clock(),  # The time is in its row; here it only means that it is stored.
            is_stream=True,
            seal_reasoning=await self._seal(request, principal),
            service_tier=stored.response.get("service_tier") or "default",
            tools=tools,
            compaction=await self._compaction(request, principal, engine.card),
        )

    async def _seal(self, request: ResponseRequest, principal: Principal) -> Callable[[str], str] | None:
        """Return the function that seals reasoning for the client, None if it did not ask for that."""
        if _SEALED_REASONING not in (request.include or ()):
            return None
        return (await self._storage.sealer.of(principal.account)).seal

    async def open_tools(
        self,
        request: PromptedRequest,
        prompt: Prompt,
        principal: Principal,
        *,
        is_batch: bool = False,
        calls: Sequence[tuple[Item, str, str]] = (),
    ) -> ToolSet:
        """Return the tools of a request and its conversation.

        `calls` are earlier calls of this response: the item, the function's name, and its output.

        Raises:
            ApiError: as the function `open_tools` does.
        """
        include = frozenset(request.include or ()) if isinstance(request, ResponseRequest) else frozenset()
        card = self.engine(request.model, principal).card
        context = ToolContext(
            principal,
            prompt.items,
            include,
            is_batch=is_batch,
            max_model_len=card.max_model_len,
            outputs=[
                *((run.name, run.output) for run in prompt.runs.values()),
                *((name, output) for _, name, output in calls),
            ],
            carried_out=[item for item, _, _ in calls],
        )
        return await open_tools(self._built_ins, placed_tools(request.tools, prompt.items, prompt.own_from), context)


def _fit(messages: list[Message], request: ResponseRequest, card: ModelCard) -> list[Message]:
    """Return the messages that the model can read, and that probably fit into its context if they may be cut."""
    if not card.has_images:
        messages = without_tool_images(messages)
    room = card.max_model_len - (request.max_output_tokens or 1)
    if request.truncation != "auto" or sum(map(message_tokens, messages)) <= room:
        return messages
    return drop_oldest_turns(messages, room)
