"""The bodies of the containers API."""

from typing import Annotated, Any, Literal

from pydantic import Field

from deployments.state.containers import StoredContainer
from deployments.tools.code_interpreter.messages import ContainerFile
from serve_app.schemas.base import PageQuery, WireModel
from serve_app.schemas.responses.code_interpreter import ContainerMemory, FileIds, NetworkPolicy

MAX_IDLE_MINUTES = 20


class ExpiresAfterUse(WireModel):
    """When a container ends, in minutes after its last use."""

    anchor: Literal["last_active_at"]
    minutes: Annotated[int, Field(ge=1, le=MAX_IDLE_MINUTES)]


class ContainerCreateRequest(WireModel):
    """A container to be created, and the files to be copied into it."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    expires_after: ExpiresAfterUse | None = None
    file_ids: FileIds | None = None
    memory_limit: ContainerMemory | None = None
    network_policy: NetworkPolicy | None = None


class ContainerFileRequest(WireModel):
    """A file of the account to be copied into a container."""

    file_id: Annotated[str, Field(min_length=1, max_length=128)]


class ContainerFileUpload(WireModel):
    """A file to be put into a container, as a form."""

    file: bytes


class ContainerQuery(PageQuery):
    """The query of a list of containers."""

    name: str | None = None


def container_to_wire(container: StoredContainer) -> dict[str, Any]:
    """Return a container for a client."""
    return {
        "id": container.container_id,
        "object": "container",
        "name": container.name,
        "created_at": int(container.created_at),
        "status": "running" if container.is_running else "expired",
        "last_active_at": int(container.last_active_at),
        "expires_after": {"anchor": "last_active_at", "minutes": round(container.idle_s / 60)},
        "memory_limit": container.memory_limit,
        "network_policy": {"type": "disabled"},
    }


def container_file_to_wire(file: ContainerFile, container_id: str, path: str) -> dict[str, Any]:
    """Return a file in a container for a client; `path` is its path inside."""
    return {
        "id": file.file_id,
        "object": "container.file",
        "created_at": int(file.created_at),
        "bytes": file.num_bytes,
        "container_id": container_id,
        "path": path,
        "source": file.source,
    }
