"""POST /v1/chat/completions, /v1/completions and /v1/embeddings: the way of every request that asks a model."""

from starlette.requests import Request
from starlette.types import ASGIApp

from serve_app.http.sse import OutcomeResponse
from serve_app.operations.registry import Body, RunnableOperation
from serve_app.operations.scopes import check_operation
from serve_app.routes.access import caller, services_of, trace_of
from serve_app.routes.contract import answers
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.completions import CompletionChunk, CompletionRequest
from serve_app.schemas.embeddings import EmbeddingList, EmbeddingRequest
from serve_app.validation.body import parse_json_body


@answers("openai.types.chat.ChatCompletion", body=ChatRequest, events="openai.types.chat.ChatCompletionChunk")
async def create_chat_completion(request: Request) -> ASGIApp:
    """Create a chat completion, streamed as server-sent events when the body asks for it."""
    return await _run(request, services_of(request).operations.chat)


@answers("openai.types.Completion", body=CompletionRequest, events=CompletionChunk)
async def create_completion(request: Request) -> ASGIApp:
    """Create a completion of plain text, streamed as server-sent events when the body asks for it."""
    return await _run(request, services_of(request).operations.completions)


@answers(EmbeddingList, body=EmbeddingRequest)
async def create_embeddings(request: Request) -> ASGIApp:
    """Create an embedding of every input."""
    return await _run(request, services_of(request).operations.embeddings)


async def _run(request: Request, operation: RunnableOperation[Body]) -> ASGIApp:
    principal = await caller(request)
    check_operation(principal, operation.name)
    trace = trace_of(request)
    async with await services_of(request).admission.admit(principal) as ticket:
        raw = await request.body()
        body = parse_json_body(raw, operation.schema)
        cost = operation.cost(body, principal)
        trace.model, trace.stream = cost.model, body.is_stream
        await ticket.reserve(cost)
        outcome = operation.run(body, raw, principal, request_id=trace.request_id)
        return OutcomeResponse(outcome, ticket.detach(), trace)
