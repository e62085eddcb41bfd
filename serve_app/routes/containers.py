"""/v1/containers: create, list, retrieve, delete; their files: create, list, retrieve, download, delete."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from deployments.models.contract.engine import ToolUse
from deployments.operations import Operation
from deployments.state.containers import StoredContainer
from deployments.state.identity.principal import Principal
from deployments.tools.code_interpreter.messages import ContainerFile
from serve_app.errors.api import BadRequest, NotFound, RetentionForbids
from serve_app.http.forms import FormEvent, PartBegin, PartData
from serve_app.operations.containers.files import ContainerFiles, FileCopy, expired, path_in
from serve_app.operations.containers.service import Containers, NewContainer
from serve_app.routes.endpoint import Deleted, answers, caller, deleted_response, json_response, services_of, trace_of
from serve_app.routes.file_content import begin_content, form_events
from serve_app.routes.paging import Page, cut_page, list_to_wire, page_of, parse_query, unknown_after
from serve_app.schemas.base import PageQuery, WireModel
from serve_app.schemas.responses.code_interpreter import ContainerMemory, FileIds, NetworkPolicy, Skills
from serve_app.validation.body import parse_body

MAX_IDLE_MINUTES = 20


class ContainerExpiry(WireModel):
    """When a container ends, in minutes after its last use.

    Args:
        minutes: how many minutes after its last use the container ends.
    """

    anchor: Literal["last_active_at"]
    minutes: Annotated[int, Field(ge=1, le=MAX_IDLE_MINUTES)]


class ContainerCreateRequest(WireModel):
    """A container to be created, and the files to be copied into it.

    Args:
        name: a name for the container.
        file_ids: uploaded files to copy into the container.
        memory_limit: the memory of the container, at most what the operator allows.
        network_policy: only `disabled` is supported: containers have no network.
    """

    example: ClassVar[dict[str, Any]] = {"name": "analysis"}

    name: Annotated[str, Field(min_length=1, max_length=256)]
    expires_after: ContainerExpiry | None = None
    file_ids: FileIds | None = None
    memory_limit: ContainerMemory | None = None
    network_policy: NetworkPolicy | None = None
    skills: Skills = None


class ContainerFileRequest(WireModel):
    """A file of the account to be copied into a container.

    Args:
        file_id: the id of an uploaded file.
    """

    example: ClassVar[dict[str, Any]] = {"file_id": "FILE_ID"}

    file_id: Annotated[str, Field(min_length=1, max_length=128)]


class ContainerFileUpload(WireModel):
    """A file to be put into a container, as a form.

    Args:
        file: the file.
    """

    example: ClassVar[dict[str, Any]] = {"file": "@data.csv"}

    file: bytes


class ContainerQuery(PageQuery):
    """The query of a list of containers.

    Args:
        name: only containers with this name.
    """

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


@answers("openai.types.ContainerCreateResponse", body=ContainerCreateRequest)
async def create_container(request: Request) -> Response:
    """Create a container.

    Copies of the given files are in it.
    """
    principal, containers = await _caller(request)
    if principal.retention == "strict":
        raise RetentionForbids("containers that outlive a response")
    body = await parse_body(await request.body(), ContainerCreateRequest)
    minutes = body.expires_after.minutes if body.expires_after is not None else None
    new = NewContainer(body.name, minutes, body.memory_limit, tuple(body.file_ids or ()))
    created = await containers.create(principal, new)
    trace_of(request).tool_use = ToolUse(code_sessions=1)
    return json_response(container_to_wire(created))


@answers(Page, of="openai.types.ContainerListResponse", query=ContainerQuery)
async def list_containers(request: Request) -> Response:
    """List containers.

    Ended containers are listed for an hour.
    """
    principal, containers = await _caller(request)
    query = parse_query(request, ContainerQuery)
    try:
        found, has_more = await containers.store.list_containers(principal.account, page_of(query), query.name)
    except KeyError:
        raise unknown_after(query.after or "") from None
    return json_response(list_to_wire([container_to_wire(one) for one in found], has_more=has_more))


@answers("openai.types.ContainerRetrieveResponse")
async def retrieve_container(request: Request) -> Response:
    """Retrieve a container.

    Counts as a use of the container.
    """
    principal, containers = await _caller(request)
    return json_response(
        container_to_wire(await containers.look(principal.account, request.path_params["container_id"]))
    )


@answers(Deleted)
async def delete_container(request: Request) -> Response:
    """Delete a container.

    Everything in it is deleted.
    """
    principal, containers = await _caller(request)
    container_id = request.path_params["container_id"]
    await containers.delete(principal.account, container_id)
    return deleted_response(container_id, "container.deleted")


@answers("openai.types.containers.FileCreateResponse", body=ContainerFileRequest, form=ContainerFileUpload)
async def create_file(request: Request) -> Response:
    """Add a file to a container.

    A multipart form with a file, or JSON with the id of an uploaded file.
    """
    principal, containers = await _caller(request)
    container = await containers.find(principal.account, request.path_params["container_id"])
    if not container.is_running:
        raise expired(container.container_id)
    if request.headers.get("content-type", "").startswith("multipart/"):
        file = await _Upload(lambda name: containers.files.begin(container, name)).receive(request)
    else:
        body = await parse_body(await request.body(), ContainerFileRequest)
        (upload,) = await containers.files.find_uploads(principal, [body.file_id], "file_id")
        file = await containers.files.copy(container, upload)
    return json_response(_to_wire(file, container))


@answers(Page, of="openai.types.containers.FileListResponse", query=PageQuery)
async def list_files(request: Request) -> Response:
    """List the files in a container."""
    principal, containers = await _caller(request)
    query = parse_query(request, PageQuery)
    container = await containers.find(principal.account, request.path_params["container_id"])
    files, has_more = cut_page(await containers.files.list_files(container), query, lambda file: file.file_id)
    return json_response(list_to_wire([_to_wire(file, container) for file in files], has_more=has_more))


@answers("openai.types.containers.FileRetrieveResponse")
async def retrieve_file(request: Request) -> Response:
    """Retrieve a file in a container.

    Returns the file's metadata.
    """
    container, files = await _container(request)
    return json_response(_to_wire(await files.find(container, request.path_params["file_id"]), container))


@answers(bytes, media_type="application/octet-stream")
async def download_file(request: Request) -> Response:
    """Download a file from a container."""
    container, files = await _container(request)
    file = await files.find(container, request.path_params["file_id"])
    content = await begin_content(files.read(container, file.file_id))
    name = quote(file.path.rpartition("/")[2])
    # Without a length: code may change the file while it is read.
    headers = {"cache-control": "no-store", "content-disposition": f"attachment; filename*=UTF-8''{name}"}
    return StreamingResponse(content, headers=headers, media_type="application/octet-stream")


@answers(Deleted)
async def delete_file(request: Request) -> Response:
    """Delete a file in a container."""
    container, files = await _container(request)
    file_id = request.path_params["file_id"]
    await files.delete(container, file_id)
    return deleted_response(file_id, "container.file.deleted")


class _Upload:
    """A multipart form on its way into a container; only its file is read."""

    def __init__(self, begin: Callable[[str], FileCopy]) -> None:
        self._begin = begin
        self._copy: FileCopy | None = None
        self._is_file = False

    async def receive(self, request: Request) -> ContainerFile:
        """Read the form; return the file.

        Raises:
            BadRequest: the form is not valid, or has no file or several.
            BodyTooLarge: the file does not fit.
        """
        async for event in form_events(request):
            await self._take(event)
        if self._copy is None:
            raise BadRequest("Missing required parameter: 'file'.", param="file", code="missing_required_parameter")
        return await self._copy.finish()

    async def _take(self, event: FormEvent) -> None:
        if isinstance(event, PartBegin):
            self._is_file = event.name == "file"
            if self._is_file and self._copy is not None:
                raise BadRequest("Only one 'file' can be uploaded at a time.", param="file")
            if self._is_file:
                self._copy = self._begin(event.filename or "upload")
        elif isinstance(event, PartData) and self._is_file and self._copy is not None:
            await self._copy.write(event.data)


async def _caller(request: Request) -> tuple[Principal, Containers]:
    principal = await caller(request, Operation.CODE_INTERPRETER)
    containers = services_of(request).containers
    if containers is None:
        raise NotFound("The code interpreter is not switched on in this service. Ask the operator.")
    return principal, containers


async def _container(request: Request) -> tuple[StoredContainer, ContainerFiles]:
    principal, containers = await _caller(request)
    return await containers.find(principal.account, request.path_params["container_id"]), containers.files


def _to_wire(file: ContainerFile, container: StoredContainer) -> dict[str, Any]:
    return container_file_to_wire(file, container.container_id, path_in(file))
