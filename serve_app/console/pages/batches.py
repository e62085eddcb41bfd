"""The account's batches: shown, cancelled, and uploaded. Every bad line is shown before anything starts."""

from typing import Any

import orjson
from starlette.responses import Response

from deployments.state.batches.rows import Batch
from deployments.state.batches.store import BatchNotFound
from deployments.state.files.store import FileNotFound, StoredFile
from serve_app.console.visit import Visit, redirect
from serve_app.errors.api import NotFound
from serve_app.routes import batches, files
from serve_app.routes.batches import BatchCreateRequest
from serve_app.validation.batch_lines import LineSplitter, Rules, Validation, validate
from serve_app.validation.body import validate_body

_PAGE_SIZE = 25
_HEAD_BYTES = 1024 * 1024
_ERRORS_SHOWN = 100
_MISSING = "This account has no such batch."


async def list_batches(visit: Visit) -> Response:
    """Show the account's batches, newest first."""
    return await _list(visit, visit.account)


async def show_batch(visit: Visit) -> Response:
    """Show a batch and its live progress."""
    batch = await _find(visit)
    errors = [] if batch.error_file_id is None else await _failed_lines(visit, batch.error_file_id)
    return visit.page("batch_state.html" if visit.is_fragment else "batch.html", batch=batch, failed=errors)


async def cancel_batch(visit: Visit) -> Response:
    """Cancel a batch; finished lines are kept."""
    await visit.call(batches.cancel_batch)
    return redirect(f"/console/batches/{visit.request.path_params['batch_id']}")


async def show_upload(visit: Visit) -> Response:
    """Show the form for an input file."""
    return visit.page("batch_new.html", file=None, found=None, endpoint="")


async def upload_input(visit: Visit) -> Response:
    """Store an input file and check it. If it has bad lines, delete it and show them."""
    answer = await visit.call(files.create_file)
    file = await visit.services.files.find(visit.account, orjson.loads(answer.body)["id"])
    endpoint = await _endpoint_of(visit, file)
    found = await _check(visit, file, endpoint)
    if found.errors:
        await visit.services.files.delete(visit.account, file.file_id)
    return visit.page("batch_new.html", file=file, found=found, endpoint=endpoint)


async def start_batch(visit: Visit) -> Response:
    """Create a batch from an input file that was checked."""
    asked = {"input_file_id": visit.fields.get("file", ""), "endpoint": visit.fields.get("endpoint", "")}
    body = validate_body({**asked, "completion_window": "24h"}, BatchCreateRequest)
    try:
        await visit.services.files.find(visit.account, body.input_file_id)
    except FileNotFound:
        raise NotFound("This account has no such file. Upload it again.") from None
    batch = await batches.start_batch(visit.services, visit.principal, body)
    return redirect(f"/console/batches/{batch.batch_id}")


async def _list(visit: Visit, account: str | None) -> Response:
    try:
        found, has_more = await visit.services.batches.list_batches(account, _PAGE_SIZE, visit.after)
    except BatchNotFound:
        raise NotFound(_MISSING if account else "There is no such batch.") from None
    more = found[-1].batch_id if has_more else ""
    values: dict[str, Any] = {"batches": found, "more": more, "of_all": account is None}
    return visit.page("batch_rows.html" if visit.is_fragment else "batches.html", **values)


async def _find(visit: Visit) -> Batch:
    try:
        return await visit.services.batches.find(visit.account, visit.request.path_params["batch_id"])
    except BatchNotFound:
        raise NotFound(_MISSING) from None


async def _endpoint_of(visit: Visit, file: StoredFile) -> str:
    """Return the endpoint in the first line of an input file, "" if there is none."""
    head = b"".join([piece async for piece in visit.services.files.read(file, 0, min(file.num_bytes, _HEAD_BYTES))])
    try:
        first = orjson.loads(head.partition(b"\n")[0])
        url = first.get("url") if isinstance(first, dict) else None
    except orjson.JSONDecodeError:
        return ""
    return url if isinstance(url, str) and url in visit.services.operations.by_path() else ""


async def _check(visit: Visit, file: StoredFile, endpoint: str) -> Validation:
    bounds = visit.services.batch_bounds
    offered = visit.services.operations.by_path()
    rules = Rules(endpoint or next(iter(offered)), bounds.max_requests, bounds.max_line_bytes)
    return await validate(visit.services.files.read(file), rules)


async def _failed_lines(visit: Visit, file_id: str) -> list[dict[str, Any]]:
    """Return the errors in the first lines of a batch's error file, empty if the file was deleted."""
    splitter = LineSplitter(_HEAD_BYTES)
    lines = []
    try:
        file = await visit.services.files.find(visit.account, file_id)
        async for piece in visit.services.files.read(file, 0, min(file.num_bytes, _HEAD_BYTES)):
            lines += [line.content for line in splitter.feed(piece) if line.content is not None]
    except FileNotFound:
        return []
    return [_failure(orjson.loads(line)) for line in lines[:_ERRORS_SHOWN]]


def _failure(line: dict[str, Any]) -> dict[str, Any]:
    response = line.get("response") or {}
    error = line.get("error") or (response.get("body") or {}).get("error") or {}
    return {
        "custom_id": line.get("custom_id") or "",
        "status": response.get("status_code"),
        "code": error.get("code") or error.get("type") or "",
        "message": error.get("message") or "",
    }
