"""/v1/files: uploads streamed into storage, lists, content by range, deletion."""

from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from deployments.operations import Operation
from deployments.state.database.queries import Page as FilePage
from deployments.state.files.store import FileInUse, FileNotFound, StoredFile
from deployments.state.identity.principal import Principal
from serve_app.errors.api import Conflict, NotFound, RetentionForbids, shorten
from serve_app.routes.endpoint import Deleted, answers, caller, deleted_response, json_response, services_of
from serve_app.routes.file_content import FileForm, begin_content, parse_range, receive_file
from serve_app.routes.paging import Page, list_to_wire, parse_query
from serve_app.schemas.base import WireModel


class FileUpload(FileForm):
    """An upload; its file is read piece by piece.

    Args:
        file: the file.
    """

    example: ClassVar[dict[str, Any]] = {"purpose": "batch", "file": "@requests.jsonl"}

    file: bytes


class FileQuery(WireModel):
    """The query of a list of files.

    Args:
        purpose: only files with this purpose.
        limit: how many files to return.
        order: `desc` for newest first, `asc` for oldest first.
        after: the id of the last file of the previous page.
    """

    purpose: Annotated[str, Field(max_length=64)] | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    order: Literal["asc", "desc"] = "desc"
    after: Annotated[str, Field(max_length=128)] | None = None


@answers("openai.types.FileObject", form=FileUpload)
async def create_file(request: Request) -> Response:
    """Upload a file.

    A multipart form with the file and its purpose.
    """
    principal = await caller(request, Operation.FILES)
    if principal.retention == "strict":
        raise RetentionForbids("files to be stored")
    services = services_of(request)
    file = await receive_file(request, services, principal)
    return json_response(file_to_wire(file))


@answers(Page, of="openai.types.FileObject", query=FileQuery)
async def list_files(request: Request) -> Response:
    """List files."""
    principal = await caller(request, Operation.FILES)
    query = parse_query(request, FileQuery)
    page = FilePage(query.limit, query.order == "asc", query.after)
    try:
        found, has_more = await services_of(request).files.list_files(principal.account, page, query.purpose)
    except FileNotFound:
        raise _unknown(query.after or "", "after") from None
    return json_response(list_to_wire([file_to_wire(file) for file in found], has_more=has_more))


@answers("openai.types.FileObject")
async def retrieve_file(request: Request) -> Response:
    """Retrieve a file.

    Returns the file's metadata.
    """
    principal = await caller(request, Operation.FILES)
    return json_response(file_to_wire(await _find(request, principal)))


@answers(Deleted)
async def delete_file(request: Request) -> Response:
    """Delete a file."""
    principal = await caller(request, Operation.FILES)
    file_id = request.path_params["file_id"]
    try:
        await services_of(request).files.delete(principal.account, file_id)
    except FileNotFound:
        raise _unknown(file_id) from None
    except FileInUse as used:
        raise Conflict(
            f"File {shorten(file_id)} is the input of batch {used.batch_id}, which has not ended. Cancel the batch "
            "first, or wait for its end.",
            param="id",
            code="file_in_use",
        ) from None
    return deleted_response(file_id, "file")


@answers(bytes, media_type="application/octet-stream", statuses=(200, 206))
async def download_file(request: Request) -> Response:
    """Download a file.

    Returns the content as it was uploaded, or the range that a `Range` header asks for.
    """
    principal = await caller(request, Operation.FILES)
    file = await _find(request, principal)
    span = parse_range(request.headers.get("range"), file.num_bytes)
    start, stop = span or (0, file.num_bytes)
    headers = {
        "accept-ranges": "bytes",
        "cache-control": "no-store",
        "content-disposition": f"attachment; filename*=UTF-8''{quote(file.filename)}",
        "content-length": str(stop - start),
    }
    if span is not None:
        headers["content-range"] = f"bytes {start}-{stop - 1}/{file.num_bytes}"
    try:
        content = await begin_content(services_of(request).files.read(file, start, stop))
    except FileNotFound:  # Deleted since it was found.
        raise _unknown(file.file_id) from None
    return StreamingResponse(content, 206 if span else 200, headers, media_type="application/octet-stream")


async def _find(request: Request, principal: Principal) -> StoredFile:
    file_id = request.path_params["file_id"]
    try:
        return await services_of(request).files.find(principal.account, file_id)
    except FileNotFound:
        raise _unknown(file_id) from None


def _unknown(file_id: str, param: str = "id") -> NotFound:
    return NotFound(f"No such File object: {shorten(file_id)}", param=param)


def file_to_wire(file: StoredFile) -> dict[str, Any]:
    """Return a file for a client."""
    return {
        "id": file.file_id,
        "object": "file",
        "bytes": file.num_bytes,
        "created_at": int(file.created_at),
        "expires_at": int(file.expires_at),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }
