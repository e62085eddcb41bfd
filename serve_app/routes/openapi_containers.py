"""Containers of the code interpreter, as the OpenAPI document tells of them."""

from typing import Any

from pydantic import BaseModel

from serve_app.routes.openapi_parts import in_path, list_of, operation, reference, wire_object
from serve_app.schemas.containers import ContainerCreateRequest

CONTAINER_BODIES: tuple[type[BaseModel], ...] = (ContainerCreateRequest,)
_CONTAINER = "/v1/containers/{container_id}"


def container_paths(page: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the paths of containers and their files; `page` are the parameters of lists."""
    container = [in_path("container_id")]
    file = [*container, in_path("file_id")]
    by_name = {"name": "name", "in": "query", "schema": {"type": "string"}}
    upload = operation("Put a file into a container: the form's, or a copy of one uploaded before", "ContainerFile")
    form = {"multipart/form-data": {"schema": reference("ContainerFileUpload")}}
    upload |= {"parameters": container, "requestBody": {"required": True, "content": form}}
    content = operation("Download a file in a container", "ContainerFile", parameters=file)
    content["responses"]["200"]["content"] = {"application/octet-stream": {"schema": {"type": "string"}}}
    return {
        "/v1/containers": {
            "get": operation("List containers", "ContainerList", parameters=[*page, by_name]),
            "post": operation("Create a container", "Container", ContainerCreateRequest),
        },
        _CONTAINER: {
            "get": operation("Describe a container", "Container", parameters=container),
            "delete": operation("End a container", "Deleted", parameters=container),
        },
        _CONTAINER + "/files": {
            "get": operation("List the files in a container", "ContainerFileList", parameters=container + page),
            "post": upload,
        },
        _CONTAINER + "/files/{file_id}": {
            "get": operation("Describe a file in a container", "ContainerFile", parameters=file),
            "delete": operation("Delete a file in a container", "Deleted", parameters=file),
        },
        _CONTAINER + "/files/{file_id}/content": {"get": content},
    }


def container_schemas() -> dict[str, Any]:
    """Return the schemas of what these paths answer with."""
    text, number = {"type": "string"}, {"type": "integer"}
    pages = {"first_id": {"type": ["string", "null"]}, "last_id": {"type": ["string", "null"]}}
    return {
        "Container": wire_object(
            id=text,
            object={"const": "container"},
            name=text,
            created_at=number,
            status={"enum": ["running", "expired"]},
            last_active_at=number,
            memory_limit=text,
        ),
        "ContainerFile": wire_object(
            id=text,
            object={"const": "container.file"},
            created_at=number,
            bytes=number,
            container_id=text,
            path=text,
            source={"enum": ["user", "assistant"]},
        ),
        "ContainerFileUpload": {
            "type": "object",
            "properties": {"file": {"type": "string", "format": "binary"}, "file_id": text},
        },
        "ContainerList": list_of("Container", **pages, has_more={"type": "boolean"}),
        "ContainerFileList": list_of("ContainerFile", **pages, has_more={"type": "boolean"}),
    }
