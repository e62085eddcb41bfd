"""The bodies of the files and uploads APIs."""

from typing import Annotated, Any, Literal

from pydantic import Field

from deployments.state.files.store import StoredFile
from deployments.state.uploads.rows import MAX_PARTS, StoredPart, StoredUpload
from serve_app.schemas.base import WireModel

MIN_LIFETIME_S = 3600
MAX_LIFETIME_S = 2_592_000

UploadPurpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]


class ExpiresAfter(WireModel):
    """When an object expires, in seconds after its creation."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=MIN_LIFETIME_S, le=MAX_LIFETIME_S)]


class FileForm(WireModel):
    """The fields of an upload besides the file."""

    purpose: UploadPurpose
    expires_after: ExpiresAfter | None = None


class FileUpload(FileForm):
    """An upload; its file is read piece by piece."""

    file: bytes


class FileQuery(WireModel):
    """The query of a list of files."""

    purpose: Annotated[str, Field(max_length=64)] | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    order: Literal["asc", "desc"] = "desc"
    after: Annotated[str, Field(max_length=128)] | None = None


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


_MAX_BYTES = 2**53


class UploadCreateRequest(WireModel):
    """An upload to be created, for a file of `bytes` bytes, which expires as `expires_after` says."""

    bytes: Annotated[int, Field(ge=1, le=_MAX_BYTES)]
    filename: Annotated[str, Field(min_length=1, max_length=255)]
    mime_type: Annotated[str, Field(min_length=1, max_length=255)]
    purpose: UploadPurpose
    expires_after: ExpiresAfter | None = None


class UploadPartForm(WireModel):
    """A part of an upload; its data is read piece by piece."""

    data: bytes


class UploadCompleteRequest(WireModel):
    """The parts of an upload in order, and the expected MD5 checksum of the file."""

    part_ids: Annotated[
        list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=MAX_PARTS, fail_fast=True)
    ]
    md5: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{32}$")] | None = None


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
