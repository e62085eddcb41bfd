"""The batches of all accounts: listed, shown, paused, resumed and cancelled. Never their content."""

from collections.abc import Awaitable, Callable
from typing import cast, get_args

from starlette.responses import Response

from deployments.state.audit_log import Actor
from deployments.state.batches.rows import Batch
from deployments.state.batches.store import BatchNotFound, StatusFilter
from deployments.state.database.tables.content import Status
from serve_app.console.pages.figures import cost_of_batch
from serve_app.console.visit import Visit, redirect
from serve_app.errors.api import NotFound
from serve_app.routes.batches import change_batch

_PAGE_SIZE = 25
_STATUSES = ("paused", *get_args(Status))
_MISSING = "There is no such batch."


async def list_batches(visit: Visit) -> Response:
    """Show the batches of all accounts, or of one, newest first."""
    account, status = visit.query("account").strip(), visit.query("status")
    wanted = cast(StatusFilter, status) if status in _STATUSES else None
    try:
        found, has_more = await visit.services.batches.list_batches(account or None, _PAGE_SIZE, visit.after, wanted)
    except BatchNotFound:
        raise NotFound(_MISSING) from None
    return visit.page(
        "operator/batch_rows.html" if visit.is_fragment else "operator/batches.html",
        batches=found,
        more=found[-1].batch_id if has_more else "",
        account=account,
        chosen=wanted or "",
        statuses=_STATUSES,
        kept=visit.request.url.include_query_params(after="").remove_query_params("after").query,
    )


async def show_batch(visit: Visit) -> Response:
    """Show a batch of any account, live: its progress, times, tokens and cost."""
    try:
        batch = await visit.services.batches.find(None, visit.request.path_params["batch_id"])
    except BatchNotFound:
        raise NotFound(_MISSING) from None
    cost = await cost_of_batch(visit, batch)
    template = "operator/batch_state.html" if visit.is_fragment else "operator/batch.html"
    return visit.page(template, batch=batch, **cost)


async def pause_batch(visit: Visit) -> Response:
    """Start no more lines of a batch of any account."""
    return await _change(visit, visit.services.batches.pause)


async def resume_batch(visit: Visit) -> Response:
    """Resume a paused batch."""
    return await _change(visit, visit.services.batches.resume)


async def cancel_batch(visit: Visit) -> Response:
    """Cancel a batch of any account."""
    return await _change(visit, visit.services.batches.cancel_any)


async def _change(visit: Visit, change: Callable[[str, Actor], Awaitable[Batch]]) -> Response:
    batch_id = visit.request.path_params["batch_id"]
    await change_batch(visit.services, change(batch_id, visit.actor), batch_id)
    return redirect(f"/console/operator/batches/{batch_id}")
