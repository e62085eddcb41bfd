"""What the parts of the OpenAPI document are made of."""

from typing import Any

from pydantic import BaseModel

REFERENCE = "#/components/schemas/{model}"
_ERRORS = {
    "400": "The body or a parameter is at fault.",
    "401": "The API key is missing or not valid.",
    "403": "The API key may not do this.",
    "404": "There is nothing under this id.",
    "429": "The key's limit is reached; retry-after and retry-after-ms say when to come back.",
    "500": "The service failed.",
    "503": "The service is overloaded or not ready; retry-after says when to come back.",
}


def operation(
    summary: str,
    answer: str,
    body: type[BaseModel] | None = None,
    *,
    streams: bool = False,
    parameters: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return an operation that answers with the schema named `answer`."""
    content: dict[str, Any] = {"application/json": {"schema": reference(answer)}}
    if streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    failures = {
        status: {"description": text, "content": {"application/json": {"schema": reference("Error")}}}
        for status, text in _ERRORS.items()
    }
    told: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "The answer.", "content": content}, **failures},
    }
    if parameters:
        told["parameters"] = parameters
    if body is not None:
        schema = {"schema": reference(body.__name__)}
        told["requestBody"] = {"required": True, "content": {"application/json": schema}}
    return told


def reference(name: str) -> dict[str, str]:
    """Return a reference to a schema of the document."""
    return {"$ref": REFERENCE.format(model=name)}


def in_path(name: str) -> dict[str, Any]:
    """Return a parameter that is a part of the path."""
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def wire_object(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object that always has these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def list_of(name: str, **more: Any) -> dict[str, Any]:
    """Return the schema of a list object."""
    return wire_object(object={"const": "list"}, data={"type": "array", "items": reference(name)}, **more)
