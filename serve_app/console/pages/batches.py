"""The account's batches: shown, cancelled, and uploaded. Every bad line is shown before anything starts."""

from collections.abc import Sequence
from typing import Any

import orjson
from starlette.responses import Response

from deployments.operations import Operation
from deployments.state.batches.rows import Batch
from deployments.state.batches.store import BatchNotFound
from deployments.state.files.store import FileNotFound, StoredFile
from deployments.state.usage.record import RequestRecord
from deployments.state.usage.request_log import RequestFilter
from serve_app.console.pages.figures import cost_of_batch
from serve_app.console.pages.models import visible_cards
from serve_app.console.visit import Visit, redirect
from serve_app.errors.api import ApiError, BadRequest, NotFound
from serve_app.routes import batches, files
from serve_app.routes.batches import BatchCreateRequest
from serve_app.validation.batch_lines import TOKEN_BOUNDS, LineSplitter, Rules, Validation, parse_line, validate
from serve_app.validation.body import validate_body

_PAGE_SIZE = 25
_HEAD_BYTES = 1024 * 1024
_ERRORS_SHOWN = 100
_FAILURES_SHOWN = 20
BODIES_CHECKED = 100
_MISSING = "This account has no such batch."


async def list_batches(visit: Visit) -> Response:
    """Show the account's batches, newest first."""
    try:
        found, has_more = await visit.services.batches.list_batches(visit.account, _PAGE_SIZE, visit.after)
    except BatchNotFound:
        raise NotFound(_MISSING) from None
    values: dict[str, Any] = {
        "batches": found,
        "more": found[-1].batch_id if has_more else "",
        "files": await _files_of(visit, found),
    }
    return visit.page("batch_rows.html" if visit.is_fragment else "batches.html", **values)


async def show_batch(visit: Visit) -> Response:
    """Show a batch, its files, its live progress, its cost and the lines that failed."""
    batch = await _find(visit)
    values: dict[str, Any] = {
        "batch": batch,
        "failed": [] if batch.error_file_id is None else await _failed_lines(visit, batch.error_file_id),
        "failures": await _failures_so_far(visit, batch),
        "files": await _files_of(visit, [batch]),
        **await cost_of_batch(visit, batch),
    }
    return visit.page("batch_state.html" if visit.is_fragment else "batch.html", **values)


async def cancel_batch(visit: Visit) -> Response:
    """Cancel a batch; finished lines are kept."""
    await visit.call(batches.cancel_batch)
    return redirect(f"/console/batches/{visit.request.path_params['batch_id']}")


async def show_upload(visit: Visit, status: int = 200, **values: Any) -> Response:
    """Show the form for an input file."""
    form = {"file": None, "found": None, "endpoint": "", "message": "", "num_checked": BODIES_CHECKED}
    chats = [card.id for card in visible_cards(visit) if Operation.CHAT in card.operations]
    return visit.page("batch_new.html", status, **form | values, bounds=TOKEN_BOUNDS, model=chats[0] if chats else None)


async def return_to_upload(visit: Visit) -> Response:
    """Show the form again to a browser that opens the address of a file that it sent."""
    return redirect("/console/batches/new")


async def upload_input(visit: Visit) -> Response:
    """Store an input file and check it. If it has bad lines, delete it and show them; if it is refused, say why."""
    try:
        answer = await visit.call(files.create_file)
    except BadRequest as refused:
        return await show_upload(visit, refused.status, message=refused.message)
    file = await visit.services.files.find(visit.account, orjson.loads(answer.body)["id"])
    stop = min(file.num_bytes, _HEAD_BYTES)
    head = b"".join([piece async for piece in visit.services.files.read(file, 0, stop)])
    endpoint = _endpoint_of(visit, head)
    found = await _check(visit, file, head, endpoint)
    if found.errors:
        await visit.services.files.delete(visit.account, file.file_id)
    return await show_upload(visit, file=file, found=found, endpoint=endpoint)


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


async def _files_of(visit: Visit, found: Sequence[Batch]) -> dict[str, StoredFile]:
    """Return the files of batches that still exist, by their ids."""
    ids = [file_id for batch in found for file_id in (batch.input_file_id, batch.output_file_id, batch.error_file_id)]
    return await visit.services.files.find_all(visit.account, [file_id for file_id in ids if file_id])


async def _failures_so_far(visit: Visit, batch: Batch) -> list[RequestRecord]:
    """Return the latest lines that failed while there is no error file yet."""
    if batch.error_file_id is not None or not batch.state.num_failed:
        return []
    where = RequestFilter(account=batch.account, batch_id=batch.batch_id, is_error=True)
    return (await visit.services.request_log.page(where, _FAILURES_SHOWN)).records


async def _find(visit: Visit) -> Batch:
    try:
        return await visit.services.batches.find(visit.account, visit.request.path_params["batch_id"])
    except BatchNotFound:
        raise NotFound(_MISSING) from None


def _endpoint_of(visit: Visit, head: bytes) -> str:
    """Return the endpoint in the first line of an input file, "" if there is none."""
    try:
        first = orjson.loads(head.partition(b"\n")[0])
        url = first.get("url") if isinstance(first, dict) else None
    except orjson.JSONDecodeError:
        return ""
    return url if isinstance(url, str) and url in visit.services.operations.by_path() else ""


async def _check(visit: Visit, file: StoredFile, head: bytes, endpoint: str) -> Validation:
    """Check the form of every line, and the bodies of the first ones if that is good."""
    bounds = visit.services.batch_bounds
    offered = visit.services.operations.by_path()
    rules = Rules(endpoint or next(iter(offered)), bounds.max_requests, bounds.max_line_bytes)
    found = await validate(visit.services.files.read(file), rules)
    if not found.errors:
        found.errors += _body_errors(visit, head, rules.endpoint)
    return found


def _body_errors(visit: Visit, head: bytes, endpoint: str) -> list[dict[str, Any]]:
    """Return the errors in the bodies of the first lines, as their requests would be refused."""
    operation = visit.services.operations.by_path()[endpoint]
    splitter = LineSplitter(_HEAD_BYTES)
    lines = list(splitter.feed(head))
    if len(head) < _HEAD_BYTES:  # Otherwise the last one may be cut.
        lines += splitter.finish()
    errors = []
    for line in lines[:BODIES_CHECKED]:
        if line.content is None:
            continue
        try:
            operation.cost(validate_body(parse_line(line.content, endpoint).body, operation.schema), visit.principal)
        except ApiError as error:
            param = "body" if error.param is None else f"body.{error.param}"
            errors.append({"line": line.number, "code": error.code, "param": param, "message": error.message})
    return errors


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
