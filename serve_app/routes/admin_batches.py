"""/v1/organization/admin/batches: the batches of all accounts, paused, resumed and cancelled under an admin key."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from deployments.state.audit_log import Actor
from deployments.state.batches.ledger import CannotCancel, CannotPause
from deployments.state.batches.rows import Batch
from deployments.state.batches.store import BatchNotFound
from serve_app.errors.api import Conflict
from serve_app.routes.access import actor_of, admin_caller, json_response, services_of
from serve_app.routes.batches import unknown_batch
from serve_app.routes.contract import answers
from serve_app.routes.paging import Page, list_to_wire, parse_query
from serve_app.schemas.batches import AllBatchesQuery, batch_to_wire
from serve_app.services import Services


@answers(Page, of="openai.types.Batch", query=AllBatchesQuery)
async def list_all_batches(request: Request) -> Response:
    """Return the batches of all accounts or of one, newest first."""
    await admin_caller(request)
    query = parse_query(request, AllBatchesQuery)
    store = services_of(request).batches
    try:
        found, has_more = await store.list_batches(query.project_id, query.limit, query.after)
    except BatchNotFound:
        raise unknown_batch(query.after or "", "after") from None
    return json_response(list_to_wire([_to_wire(batch) for batch in found], has_more=has_more))


@answers("openai.types.Batch")
async def pause_batch(request: Request) -> Response:
    """Start no more lines of a batch until it is resumed; its time goes on."""
    return await _change(request, services_of(request).batches.pause)


@answers("openai.types.Batch")
async def resume_batch(request: Request) -> Response:
    """Let a paused batch go on."""
    return await _change(request, services_of(request).batches.resume)


@answers("openai.types.Batch")
async def cancel_any_batch(request: Request) -> Response:
    """Stop a batch of any account; what is done is kept."""
    return await _change(request, services_of(request).batches.cancel_any)


async def change_batch(
    services: Services, change: Callable[[str, Actor], Awaitable[Batch]], batch_id: str, by: Actor
) -> Batch:
    """Make an operator's change of a batch; return the batch.

    Raises:
        NotFound: there is no such batch.
        Conflict: what it does now cannot be paused or cancelled.
    """
    try:
        batch = await change(batch_id, by)
    except BatchNotFound:
        raise unknown_batch(batch_id) from None
    except CannotCancel as refused:
        raise Conflict(f"Cannot cancel a batch with status '{refused.status}'.") from None
    except CannotPause as refused:
        raise Conflict(f"Cannot pause a batch with status '{refused.status}'.") from None
    services.wake_batches()
    return batch


async def _change(request: Request, change: Callable[[str, Actor], Awaitable[Batch]]) -> Response:
    principal = await admin_caller(request)
    batch_id = request.path_params["batch_id"]
    return json_response(_to_wire(await change_batch(services_of(request), change, batch_id, actor_of(principal))))


def _to_wire(batch: Batch) -> dict[str, Any]:
    return {**batch_to_wire(batch), "project_id": batch.account}
