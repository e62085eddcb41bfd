"""/v1/uploads: large files in parts: create, add parts in parallel, complete, cancel."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from deployments.operations import Operation
from deployments.state.files.content import FileWriter
from deployments.state.files.store import StoredFile
from deployments.state.identity.principal import Principal
from deployments.state.uploads.rows import (
    MAX_PART_BYTES,
    MAX_PARTS,
    MAX_PENDING,
    NewUpload,
    NoRoom,
    StoredPart,
    StoredUpload,
    TooManyParts,
    TooManyUploads,
    UnknownPart,
    UploadEnded,
    UploadNotFound,
    UploadRefused,
    WrongChecksum,
    WrongSize,
)
from serve_app.errors.api import (
    ApiError,
    BadRequest,
    BodyTooLarge,
    Conflict,
    NotFound,
    RetentionForbids,
    invalid_value,
    shorten,
)
from serve_app.errors.capacity import QuotaExceeded
from serve_app.http.forms import PartBegin, PartData
from serve_app.routes.endpoint import answers, caller, json_response, services_of
from serve_app.routes.file_content import NO_ROOM, FileExpiry, UploadPurpose, check_name, clean, form_events
from serve_app.routes.files import file_to_wire
from serve_app.schemas.base import WireModel
from serve_app.validation.body import parse_body

_MAX_BYTES = 2**53


class UploadCreateRequest(WireModel):
    """An upload to be created, for a file of `bytes` bytes, which expires as `expires_after` says.

    Args:
        bytes: the size of the whole file.
        filename: the file's name.
        mime_type: the file's media type, such as `text/plain`.
        purpose: what the file is for, as in `POST /v1/files`.
    """

    example: ClassVar[dict[str, Any]] = {
        "bytes": 1_048_576,
        "filename": "notes.txt",
        "mime_type": "text/plain",
        "purpose": "user_data",
    }

    bytes: Annotated[int, Field(ge=1, le=_MAX_BYTES)]
    filename: Annotated[str, Field(min_length=1, max_length=255)]
    mime_type: Annotated[str, Field(min_length=1, max_length=255)]
    purpose: UploadPurpose
    expires_after: FileExpiry | None = None


class UploadPartForm(WireModel):
    """A part of an upload; its data is read piece by piece.

    Args:
        data: the bytes of the part, at most 64 MiB.
    """

    example: ClassVar[dict[str, Any]] = {"data": "@notes.part1"}

    data: bytes


class UploadCompleteRequest(WireModel):
    """The parts of an upload in order, and the expected MD5 checksum of the file.

    Args:
        part_ids: the ids of the parts, in the order of the file.
        md5: the MD5 checksum of the file, in hexadecimal, to be checked.
    """

    example: ClassVar[dict[str, Any]] = {"part_ids": ["PART_ID"]}

    part_ids: Annotated[
        list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=MAX_PARTS, fail_fast=True)
    ]
    md5: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{32}$")] | None = None


@answers("openai.types.Upload", body=UploadCreateRequest)
async def create_upload(request: Request) -> Response:
    """Create an upload.

    It takes parts for an hour.
    """
    principal = await caller(request, Operation.FILES)
    if principal.retention == "strict":
        raise RetentionForbids("files to be stored")
    body = await parse_body(await request.body(), UploadCreateRequest)
    services = services_of(request)
    limit = services.file_rules.max_total_bytes(body.purpose)
    if body.bytes > limit:
        raise BadRequest(
            f"Invalid 'bytes': integer above maximum value. Expected a value <= {limit}, but got {body.bytes} instead.",
            param="bytes",
            code="integer_above_max_value",
        )
    filename = clean(body.filename)
    check_name(filename, body.purpose, "filename")
    asked_s = None if body.expires_after is None else body.expires_after.seconds
    new = NewUpload(
        account=principal.account,
        key_id=principal.key_id,
        purpose=body.purpose,
        filename=filename,
        mime_type=body.mime_type,
        num_bytes=body.bytes,
        file_lifetime_s=services.file_rules.lifetime_s(body.purpose, principal.retention, asked_s),
    )
    with _translated(""):
        upload = await services.uploads.create(
            new, services.file_rules_of(principal), services.tiers.of(principal.tier).stored_objects
        )
    return json_response(upload_to_wire(upload))


@answers("openai.types.uploads.UploadPart", form=UploadPartForm)
async def create_part(request: Request) -> Response:
    """Add a part to an upload.

    Parts may be sent in parallel; their order is given when the upload is completed.
    """
    principal, upload_id = await _caller(request)
    services = services_of(request)
    with _translated(upload_id):
        upload = await services.uploads.find(principal.account, upload_id)
        async with services.uploads.create_part(upload) as writer:
            await _receive_data(request, writer)
        part = await services.uploads.record_part(upload, writer, services.file_rules_of(principal))
    return json_response(part_to_wire(part))


@answers("openai.types.Upload", body=UploadCompleteRequest)
async def complete_upload(request: Request) -> Response:
    """Complete an upload.

    Creates a file from the parts, in the order of the given ids.
    """
    principal, upload_id = await _caller(request)
    body = await parse_body(await request.body(), UploadCompleteRequest)
    with _translated(upload_id):
        upload, file = await services_of(request).uploads.complete(
            principal.account, upload_id, body.part_ids, body.md5
        )
    return json_response(upload_to_wire(upload, file))


@answers("openai.types.Upload")
async def cancel_upload(request: Request) -> Response:
    """Cancel an upload.

    Its parts are deleted.
    """
    principal, upload_id = await _caller(request)
    with _translated(upload_id):
        upload = await services_of(request).uploads.cancel(principal.account, upload_id)
    return json_response(upload_to_wire(upload))


async def _caller(request: Request) -> tuple[Principal, str]:
    return await caller(request, Operation.FILES), request.path_params["upload_id"]


async def _receive_data(request: Request, writer: FileWriter) -> None:
    """Write the `data` field of a form; raise BadRequest or BodyTooLarge where it is not valid."""
    has_begun = False
    async for event in form_events(request):
        if isinstance(event, PartBegin):
            if event.name != "data":
                name = shorten(event.name)
                raise BadRequest(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
            if has_begun:
                raise BadRequest("Only one 'data' can be uploaded at a time.", param="data")
            has_begun = True
        elif isinstance(event, PartData):
            await writer.write(event.data)
            if writer.num_bytes > MAX_PART_BYTES:
                raise BodyTooLarge(MAX_PART_BYTES, param="data")
    if not has_begun:
        raise BadRequest("Missing required parameter: 'data'.", param="data", code="missing_required_parameter")


@contextmanager
def _translated(upload_id: str) -> Iterator[None]:
    """Context manager that turns errors of the upload store into those of the API."""
    try:
        yield
    except UploadNotFound:
        raise NotFound(f"No such Upload object: {shorten(upload_id)}", param="upload_id") from None
    except UploadRefused as refused:
        raise _error_for(refused, upload_id) from None


def _error_for(refused: UploadRefused, upload_id: str) -> ApiError:
    match refused:
        case UploadEnded():
            message = f"Upload {shorten(upload_id)} is {refused.status}: create a new upload."
            return Conflict(message, param="upload_id", code=f"upload_{refused.status}")
        case UnknownPart():
            message = f"Invalid 'part_ids': the upload has no part '{shorten(refused.part_id)}'."
            return invalid_value(message, "part_ids")
        case WrongSize():
            message = (
                f"Invalid 'part_ids': the parts have {refused.num_bytes} bytes, but the upload was created with other "
                "'bytes'. Add the missing parts, or send other ids."
            )
            return BadRequest(message, param="part_ids", code="upload_size_mismatch")
        case WrongChecksum():
            message = "Invalid 'md5': the parts, in this order, have another checksum. Send again what has changed."
            return BadRequest(message, param="md5", code="upload_checksum_mismatch")
        case TooManyUploads():
            message = f"You have {MAX_PENDING} uploads that have not ended. Complete or cancel one of them."
            return QuotaExceeded(message, code="upload_limit_exceeded")
        case TooManyParts():
            message = f"An upload may have {MAX_PARTS} parts, as large as the largest file together."
            return BadRequest(message, param="data", code="upload_parts_limit_exceeded")
        case NoRoom():
            return QuotaExceeded(NO_ROOM)
        case _:
            return ApiError()


def upload_to_wire(upload: StoredUpload, file: StoredFile | None = None) -> dict[str, Any]:
    """Return an upload for a client, with its file once there is one."""
    return {
        "id": upload.upload_id,
        "object": "upload",
        "bytes": upload.num_bytes,
        "created_at": int(upload.created_at),
        "expires_at": int(upload.expires_at),
        "filename": upload.filename,
        "purpose": upload.purpose,
        "status": upload.status,
        "file": None if file is None else file_to_wire(file),
    }


def part_to_wire(part: StoredPart) -> dict[str, Any]:
    """Return a part of an upload for a client."""
    return {
        "id": part.part_id,
        "object": "upload.part",
        "created_at": int(part.created_at),
        "upload_id": part.upload_id,
    }
