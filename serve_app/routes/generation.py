"""The endpoints that are created from the class of an operation, such as POST /v1/chat/completions."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.types import ASGIApp

from deployments.steps import RECEIVE, step
from serve_app.http.sse import OutcomeResponse
from serve_app.operations.contract import Body, DescribedOperation, RunnableOperation
from serve_app.operations.service_tiers import find_terms
from serve_app.routes.endpoint import admitted, answers, read_body, reserve, services_of, trace_of


def create_endpoint(operation: DescribedOperation) -> Callable[[Request], Awaitable[ASGIApp]]:
    """Return the endpoint of an operation, with its contract and, as its docstring, the operation's."""

    @answers(operation.answer, body=operation.schema, events=operation.events)
    async def create(request: Request) -> ASGIApp:
        return await _run(request, services_of(request).operations.by_name[operation.name])

    create.__doc__ = operation.__doc__
    return create


async def _run(request: Request, operation: RunnableOperation[Body]) -> ASGIApp:
    trace, services = trace_of(request), services_of(request)
    async with admitted(request, operation.name) as (principal, ticket):
        with step(RECEIVE):
            await request.body()
        body, sent = await read_body(request, operation.schema)
        cost = operation.cost(body, principal)
        trace.stream = body.is_stream
        terms = find_terms(body, principal, services.tiers)
        await reserve(ticket, trace, cost, terms)
        outcome = operation.run(body, sent.raw, principal, request_id=trace.request_id, **terms.options)
        return OutcomeResponse(outcome, ticket.detach(), trace, services.silence)
