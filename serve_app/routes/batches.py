"""/v1/batches: create, list, retrieve, cancel. Under /v1/organization/admin/batches an admin key reaches all accounts'.

The package `batch` runs them.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from deployments.operations import Operation
from deployments.state.audit_log import Actor
from deployments.state.batches.ledger import CannotCancel, CannotPause
from deployments.state.batches.rows import Batch, NewBatch
from deployments.state.batches.store import BatchNotFound, TooManyBatches
from deployments.state.identity.principal import Principal
from serve_app.errors.api import Conflict, NotFound, RetentionForbids, invalid_value, shorten
from serve_app.errors.capacity import QuotaExceeded
from serve_app.operations.scopes import check_operation
from serve_app.routes.endpoint import actor_of, admin_caller, answers, caller, json_response, services_of
from serve_app.routes.file_content import FileExpiry
from serve_app.routes.paging import Page, list_to_wire, parse_query
from serve_app.schemas.base import Metadata, WireModel
from serve_app.services import Services
from serve_app.validation.body import parse_body

WINDOW_S = 86_400.0
_TIMES = (
    "in_progress_at",
    "expires_at",
    "finalizing_at",
    "completed_at",
    "failed_at",
    "expired_at",
    "cancelling_at",
    "cancelled_at",
)


class BatchCreateRequest(WireModel):
    """The body of POST /v1/batches.

    Args:
        input_file_id: the id of an uploaded file with purpose `batch`, which has one request on each line.
        endpoint: the endpoint of all requests, such as `/v1/chat/completions`.
        completion_window: the time within which the batch runs.
        output_expires_after: when the output and the error file expire.
    """

    example: ClassVar[dict[str, Any]] = {
        "input_file_id": "FILE_ID",
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
    }

    input_file_id: Annotated[str, Field(min_length=1, max_length=64)]
    endpoint: Annotated[str, Field(max_length=64)]
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: FileExpiry | None = None


class BatchQuery(WireModel):
    """The query of a list of batches.

    Args:
        limit: how many batches to return.
        after: the id of the last batch of the previous page.
    """

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    after: Annotated[str, Field(max_length=128)] | None = None


class AllBatchesQuery(BatchQuery):
    """The query of a list of the batches of all accounts.

    Args:
        project_id: only the batches of this account.
    """

    project_id: Annotated[str, Field(max_length=64)] | None = None


def batch_to_wire(batch: Batch) -> dict[str, Any]:
    """Return a batch for a client, always with every key."""
    state = batch.state
    times = {name: getattr(state, name) for name in _TIMES}
    return {
        "id": batch.batch_id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": None,
        "errors": None if batch.errors is None else {"object": "list", "data": batch.errors},
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": state.status,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": int(state.created_at),
        **{name: None if at is None else int(at) for name, at in times.items()},
        "paused_at": int(state.paused_at or 0) if state.is_paused else None,
        "request_counts": {"total": state.num_total, "completed": state.num_completed, "failed": state.num_failed},
        "usage": {
            "input_tokens": state.tokens.prompt,
            "input_tokens_details": {"cached_tokens": state.tokens.cached},
            "output_tokens": state.tokens.completion,
            "output_tokens_details": {"reasoning_tokens": state.tokens.reasoning},
            "total_tokens": state.tokens.prompt + state.tokens.completion,
        },
        "metadata": batch.metadata,
    }


@answers("openai.types.Batch", body=BatchCreateRequest)
async def create_batch(request: Request) -> Response:
    """Create a batch.

    The input file is checked after the answer; follow the batch's status.
    """
    principal = await caller(request, Operation.BATCHES)
    body = await parse_body(await request.body(), BatchCreateRequest)
    return json_response(batch_to_wire(await start_batch(services_of(request), principal, body)))


async def start_batch(services: Services, principal: Principal, body: BatchCreateRequest) -> Batch:
    """Create a batch for a principal; return it.

    Raises:
        RetentionForbids: the key may store nothing.
        BadRequest, PermissionDenied: batches have no such endpoint, or the key may not use it.
        QuotaExceeded: the account has too many unfinished batches.
    """
    if principal.retention == "strict":
        raise RetentionForbids("batches, whose input and output are stored")
    _check_endpoint(services, principal, body.endpoint)
    asked = body.output_expires_after
    new = NewBatch(
        principal=principal,
        input_file_id=body.input_file_id,
        endpoint=body.endpoint,
        completion_window=body.completion_window,
        window_s=WINDOW_S,
        metadata=body.metadata,
        output_expires_after_s=None if asked is None else asked.seconds,
    )
    try:
        batch = await services.batches.create(new)
    except TooManyBatches as refused:
        raise QuotaExceeded(
            f"You have {refused.limit} batches that have not ended, which is the limit. Wait for one of them to "
            "end, or cancel one.",
            code="batch_limit_exceeded",
        ) from None
    services.wake_batches()
    return batch


@answers(Page, of="openai.types.Batch", query=BatchQuery)
async def list_batches(request: Request) -> Response:
    """List batches.

    Newest first.
    """
    principal = await caller(request, Operation.BATCHES)
    query = parse_query(request, BatchQuery)
    try:
        found, has_more = await services_of(request).batches.list_batches(principal.account, query.limit, query.after)
    except BatchNotFound:
        raise unknown_batch(query.after or "", "after") from None
    return json_response(list_to_wire([batch_to_wire(batch) for batch in found], has_more=has_more))


@answers("openai.types.Batch")
async def retrieve_batch(request: Request) -> Response:
    """Retrieve a batch.

    Returns the batch with its progress.
    """
    principal = await caller(request, Operation.BATCHES)
    batch_id = request.path_params["batch_id"]
    try:
        return json_response(batch_to_wire(await services_of(request).batches.find(principal.account, batch_id)))
    except BatchNotFound:
        raise unknown_batch(batch_id) from None


@answers("openai.types.Batch")
async def cancel_batch(request: Request) -> Response:
    """Cancel a batch.

    Requests that have finished keep their results.
    """
    principal = await caller(request, Operation.BATCHES)
    services, batch_id = services_of(request), request.path_params["batch_id"]
    cancelling = services.batches.cancel(principal.account, batch_id)
    return json_response(batch_to_wire(await change_batch(services, cancelling, batch_id)))


def _check_endpoint(services: Services, principal: Principal, endpoint: str) -> None:
    operations = services.operations.by_path()
    if endpoint not in operations:
        offered = ", ".join(f"'{path}'" for path in operations)
        raise invalid_value(f"Invalid value: '{shorten(endpoint)}'. Supported values are: {offered}.", "endpoint")
    check_operation(principal, operations[endpoint].name)


def unknown_batch(batch_id: str, param: str = "id") -> NotFound:
    """Return the error for an unknown batch."""
    return NotFound(f"No batch found with id '{shorten(batch_id)}'.", param=param)


@answers(Page, of="openai.types.Batch", query=AllBatchesQuery)
async def list_all_batches(request: Request) -> Response:
    """List the batches of all accounts.

    Newest first; `project_id` keeps those of one account.
    """
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
    """Pause a batch.

    No more of its requests start until it is resumed. Its completion window goes on.
    """
    return await _change(request, services_of(request).batches.pause)


@answers("openai.types.Batch")
async def resume_batch(request: Request) -> Response:
    """Resume a paused batch."""
    return await _change(request, services_of(request).batches.resume)


@answers("openai.types.Batch")
async def cancel_any_batch(request: Request) -> Response:
    """Cancel a batch of any account.

    Requests that have finished keep their results.
    """
    return await _change(request, services_of(request).batches.cancel_any)


async def change_batch(services: Services, change: Awaitable[Batch], batch_id: str) -> Batch:
    """Carry out a change of a batch; return the batch.

    Raises:
        NotFound: there is no such batch.
        Conflict: its status does not allow the change.
    """
    try:
        batch = await change
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
    changing = change(batch_id, actor_of(principal))
    return json_response(_to_wire(await change_batch(services_of(request), changing, batch_id)))


def _to_wire(batch: Batch) -> dict[str, Any]:
    return {**batch_to_wire(batch), "project_id": batch.account}
