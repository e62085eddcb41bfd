"""The form of an upload, the query of a list, and how a file is shown."""

from typing import Annotated, Any, Literal

from pydantic import Field

from deployments.state.files.store import StoredFile
from serve_app.schemas.base import WireModel

MIN_LIFETIME_S = 3600
MAX_LIFETIME_S = 2_592_000

UploadPurpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]


class ExpiresAfter(WireModel):
    """When something ends, in seconds after its creation."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=MIN_LIFETIME_S, le=MAX_LIFETIME_S)]


class FileForm(WireModel):
    """The fields of an upload beside the file itself."""

    purpose: UploadPurpose
    expires_after: ExpiresAfter | None = None


class FileUpload(FileForm):
    """An upload as a whole; `upload` takes its file piece by piece."""

    file: bytes


class FileQuery(WireModel):
    """The query of a list of files."""

    purpose: Annotated[str, Field(max_length=64)] | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    order: Literal["asc", "desc"] = "desc"
    after: Annotated[str, Field(max_length=128)] | None = None


def file_to_wire(file: StoredFile) -> dict[str, Any]:
    """Return a file as clients know it."""
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
