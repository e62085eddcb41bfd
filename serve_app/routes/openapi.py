"""The service's description of itself as an OpenAPI document, made from the schemas that requests are checked with."""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from deployments.state.batch_ledger import STATUSES
from deployments.state.keys import KeyChange, NewKey
from serve_app.routes.admin_keys import Rotation
from serve_app.schemas.batches import BatchCreateRequest
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.completions import CompletionRequest
from serve_app.schemas.embeddings import EmbeddingRequest
from serve_app.schemas.files import PURPOSES

_REFERENCE = "#/components/schemas/{model}"
_BODIES: tuple[type[BaseModel], ...] = (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    BatchCreateRequest,
    NewKey,
    KeyChange,
    Rotation,
)
_AFTER = {"name": "after", "in": "query", "schema": {"type": "string"}}
_FILE_QUERY: dict[str, Any] = {
    "purpose": {"type": "string"},
    "limit": {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 10_000},
    "order": {"enum": ["asc", "desc"], "default": "desc"},
    "after": {"type": "string"},
}
_KEYS = "/v1/organization/admin/keys"
_ERRORS = {
    "400": "The body or a parameter is at fault.",
    "401": "The API key is missing or not valid.",
    "403": "The API key may not do this.",
    "404": "There is nothing under this id.",
    "429": "The key's limit is reached; retry-after and retry-after-ms say when to come back.",
    "500": "The service failed.",
    "503": "The service is overloaded or not ready; retry-after says when to come back.",
}


def create_document() -> dict[str, Any]:
    """Return the document: every path that is served, nothing that is not."""
    _, definitions = models_json_schema([(body, "validation") for body in _BODIES], ref_template=_REFERENCE)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Manta",
            "version": "1",
            "description": "Language models behind an interface that OpenAI's client libraries speak.",
        },
        "security": [{"key": []}],
        "paths": {**_model_paths(), **_file_paths(), **_batch_paths(), **_admin_paths(), **_operator_paths()},
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {**definitions.get("$defs", {}), **_answer_schemas()},
        },
    }


def _model_paths() -> dict[str, Any]:
    model = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "/v1/chat/completions": {
            "post": _operation("Create a chat completion", "ChatCompletion", ChatRequest, streams=True)
        },
        "/v1/completions": {
            "post": _operation("Continue a plain text", "Completion", CompletionRequest, streams=True),
        },
        "/v1/embeddings": {"post": _operation("Create embeddings", "EmbeddingList", EmbeddingRequest)},
        "/v1/models": {"get": _operation("List the models that the key may use", "ModelList")},
        "/v1/models/{model}": {
            "get": _operation("Describe a model; its id may hold slashes", "Model", parameters=[model])
        },
    }


def _file_paths() -> dict[str, Any]:
    file_id = [{"name": "file_id", "in": "path", "required": True, "schema": {"type": "string"}}]
    filters = [{"name": name, "in": "query", "schema": schema} for name, schema in _FILE_QUERY.items()]
    upload = _operation("Upload a file", "File")
    upload["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _reference("FileUpload")}}}
    content = _operation("Download a file, or a range of it", "File", parameters=file_id)
    content["responses"]["200"]["content"] = {"application/octet-stream": {"schema": {"type": "string"}}}
    return {
        "/v1/files": {"get": _operation("List files", "FileList", parameters=filters), "post": upload},
        "/v1/files/{file_id}": {
            "get": _operation("Describe a file", "File", parameters=file_id),
            "delete": _operation("Destroy a file", "Deleted", parameters=file_id),
        },
        "/v1/files/{file_id}/content": {"get": content},
    }


def _batch_paths() -> dict[str, Any]:
    batch_id = [{"name": "batch_id", "in": "path", "required": True, "schema": {"type": "string"}}]
    limit = {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}
    filters = [{"name": "limit", "in": "query", "schema": limit}, _AFTER]
    return {
        "/v1/batches": {
            "get": _operation("List batches", "BatchList", parameters=filters),
            "post": _operation("Create a batch", "Batch", BatchCreateRequest),
        },
        "/v1/batches/{batch_id}": {"get": _operation("Describe a batch", "Batch", parameters=batch_id)},
        "/v1/batches/{batch_id}/cancel": {"post": _operation("Cancel a batch", "Batch", parameters=batch_id)},
    }


def _admin_paths() -> dict[str, Any]:
    key_id = {"name": "key_id", "in": "path", "required": True, "schema": {"type": "string"}}
    filters = [
        {"name": "account", "in": "query", "schema": {"type": "string"}},
        {"name": "include_revoked", "in": "query", "schema": {"type": "boolean", "default": False}},
    ]
    return {
        _KEYS: {
            "get": _operation("List API keys (admin key)", "ApiKeyList", parameters=filters),
            "post": _operation("Issue an API key (admin key)", "ApiKey", NewKey),
        },
        _KEYS + "/{key_id}": {
            "get": _operation("Describe an API key (admin key)", "ApiKey", parameters=[key_id]),
            "post": _operation("Change an API key's limits (admin key)", "ApiKey", KeyChange, parameters=[key_id]),
            "delete": _operation("Revoke an API key (admin key)", "Deleted", parameters=[key_id]),
        },
        _KEYS + "/{key_id}/rotate": {
            "post": _operation("Give an API key a new secret (admin key)", "ApiKey", Rotation, parameters=[key_id])
        },
    }


def _operator_paths() -> dict[str, Any]:
    pages = {
        "/livez": "Say that the process answers",
        "/readyz": "Say whether requests can be served (200 or 503)",
        "/metrics": "Measurements in Prometheus' text format",
        "/openapi.json": "This document",
        "/docs": "This document, to be read",
    }
    answer = {"responses": {"200": {"description": "The page."}}, "security": []}
    return {path: {"get": {"summary": summary, **answer}} for path, summary in pages.items()}


def _operation(
    summary: str,
    answer: str,
    body: type[BaseModel] | None = None,
    *,
    streams: bool = False,
    parameters: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": _reference(answer)}}
    if streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    failures = {
        status: {"description": text, "content": {"application/json": {"schema": _reference("Error")}}}
        for status, text in _ERRORS.items()
    }
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "The answer.", "content": content}, **failures},
    }
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        schema = {"schema": _reference(body.__name__)}
        operation["requestBody"] = {"required": True, "content": {"application/json": schema}}
    return operation


def _reference(name: str) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(model=name)}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list_of(name: str, **more: Any) -> dict[str, Any]:
    return _object(object={"const": "list"}, data={"type": "array", "items": _reference(name)}, **more)


def _answer_schemas() -> dict[str, Any]:
    text, number = {"type": "string"}, {"type": "integer"}
    maybe_text = {"type": ["string", "null"]}
    usage = _object(prompt_tokens=number, completion_tokens=number, total_tokens=number)
    reason = {"enum": ["stop", "length", "content_filter", "tool_calls"]}
    message = _object(role={"const": "assistant"}, content=maybe_text, refusal=maybe_text)
    choice = _object(index=number, message=message, logprobs={"type": ["object", "null"]}, finish_reason=reason)
    text_choice = _object(index=number, text=text, finish_reason=reason)
    head = {"id": text, "created": number, "model": text}
    vector = {"oneOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string", "format": "byte"}]}
    embedding = _object(object={"const": "embedding"}, index=number, embedding=vector)
    return {
        "Error": _object(error=_object(message=text, type=text, param=maybe_text, code=maybe_text)),
        "ChatCompletion": _object(
            **head, object={"const": "chat.completion"}, choices={"type": "array", "items": choice}, usage=usage
        ),
        "Completion": _object(
            **head, object={"const": "text_completion"}, choices={"type": "array", "items": text_choice}, usage=usage
        ),
        "Embedding": embedding,
        "EmbeddingList": _list_of("Embedding", model=text, usage=_object(prompt_tokens=number, total_tokens=number)),
        "Model": _object(id=text, object={"const": "model"}, created=number, owned_by=text),
        "ModelList": _list_of("Model"),
        "ApiKey": _object(id=text, object={"const": "organization.api_key"}, name=text, tier=text),
        "ApiKeyList": _list_of("ApiKey"),
        "File": _object(
            id=text,
            object={"const": "file"},
            bytes=number,
            created_at=number,
            expires_at=number,
            filename=text,
            purpose=text,
            status={"const": "processed"},
        ),
        "FileList": _list_of("File", first_id=maybe_text, last_id=maybe_text, has_more={"type": "boolean"}),
        "FileUpload": _object(file={"type": "string", "format": "binary"}, purpose={"enum": list(PURPOSES)}),
        "Batch": _object(
            id=text,
            object={"const": "batch"},
            endpoint=text,
            input_file_id=text,
            status={"enum": list(STATUSES)},
            output_file_id=maybe_text,
            error_file_id=maybe_text,
            request_counts=_object(total=number, completed=number, failed=number),
        ),
        "BatchList": _list_of("Batch", first_id=maybe_text, last_id=maybe_text, has_more={"type": "boolean"}),
        "Deleted": _object(id=text, object=text, deleted={"const": True}),
    }
