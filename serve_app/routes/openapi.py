"""The service's description of itself as an OpenAPI document, made from the schemas that requests are checked with."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from deployments.state.batch_ledger import STATUSES
from deployments.state.keys import KeyChange, NewKey
from serve_app.routes.admin_keys import Rotation
from serve_app.routes.openapi_containers import CONTAINER_BODIES, container_paths, container_schemas
from serve_app.routes.openapi_parts import REFERENCE, list_of, operation, reference, wire_object
from serve_app.routes.openapi_responses import PAGE, RESPONSE_BODIES, response_paths, response_schemas
from serve_app.routes.openapi_vector_stores import VECTOR_STORE_BODIES, vector_store_paths, vector_store_schemas
from serve_app.schemas.batches import BatchCreateRequest
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.completions import CompletionRequest
from serve_app.schemas.embeddings import EmbeddingRequest
from serve_app.schemas.files import PURPOSES

_BODIES: tuple[type[BaseModel], ...] = (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    BatchCreateRequest,
    NewKey,
    KeyChange,
    Rotation,
    *RESPONSE_BODIES,
    *CONTAINER_BODIES,
    *VECTOR_STORE_BODIES,
)
_AFTER = {"name": "after", "in": "query", "schema": {"type": "string"}}
_FILE_QUERY: dict[str, Any] = {
    "purpose": {"type": "string"},
    "limit": {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 10_000},
    "order": {"enum": ["asc", "desc"], "default": "desc"},
    "after": {"type": "string"},
}
_KEYS = "/v1/organization/admin/keys"


def create_document(tiers: Sequence[str]) -> dict[str, Any]:
    """Return the document: every path that is served, nothing that is not. `tiers` are those that keys may have."""
    _, definitions = models_json_schema([(body, "validation") for body in _BODIES], ref_template=REFERENCE)
    for body in (NewKey, KeyChange):
        definitions["$defs"][body.__name__]["properties"]["tier"] = {
            "type": "string",
            "enum": list(tiers),
            "default": body.model_fields["tier"].default,
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Manta",
            "version": "1",
            "description": "Language models behind an interface that OpenAI's client libraries speak.",
        },
        "security": [{"key": []}],
        "paths": {
            **_model_paths(),
            **response_paths(),
            **container_paths(PAGE),
            **vector_store_paths(PAGE),
            **_file_paths(),
            **_batch_paths(),
            **_admin_paths(),
            **_operator_paths(),
        },
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                **definitions["$defs"],
                **_answer_schemas(),
                **response_schemas(),
                **container_schemas(),
                **vector_store_schemas(),
            },
        },
    }


def _model_paths() -> dict[str, Any]:
    model = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "/v1/chat/completions": {
            "post": operation("Create a chat completion", "ChatCompletion", ChatRequest, streams=True)
        },
        "/v1/completions": {
            "post": operation("Continue a plain text", "Completion", CompletionRequest, streams=True),
        },
        "/v1/embeddings": {"post": operation("Create embeddings", "EmbeddingList", EmbeddingRequest)},
        "/v1/models": {"get": operation("List the models that the key may use", "ModelList")},
        "/v1/models/{model}": {
            "get": operation("Describe a model; its id may hold slashes", "Model", parameters=[model])
        },
    }


def _file_paths() -> dict[str, Any]:
    file_id = [{"name": "file_id", "in": "path", "required": True, "schema": {"type": "string"}}]
    filters = [{"name": name, "in": "query", "schema": schema} for name, schema in _FILE_QUERY.items()]
    upload = operation("Upload a file", "File")
    upload["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": reference("FileUpload")}}}
    content = operation("Download a file, or a range of it", "File", parameters=file_id)
    content["responses"]["200"]["content"] = {"application/octet-stream": {"schema": {"type": "string"}}}
    return {
        "/v1/files": {"get": operation("List files", "FileList", parameters=filters), "post": upload},
        "/v1/files/{file_id}": {
            "get": operation("Describe a file", "File", parameters=file_id),
            "delete": operation("Destroy a file", "Deleted", parameters=file_id),
        },
        "/v1/files/{file_id}/content": {"get": content},
    }


def _batch_paths() -> dict[str, Any]:
    batch_id = [{"name": "batch_id", "in": "path", "required": True, "schema": {"type": "string"}}]
    limit = {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}
    filters = [{"name": "limit", "in": "query", "schema": limit}, _AFTER]
    return {
        "/v1/batches": {
            "get": operation("List batches", "BatchList", parameters=filters),
            "post": operation("Create a batch", "Batch", BatchCreateRequest),
        },
        "/v1/batches/{batch_id}": {"get": operation("Describe a batch", "Batch", parameters=batch_id)},
        "/v1/batches/{batch_id}/cancel": {"post": operation("Cancel a batch", "Batch", parameters=batch_id)},
    }


def _admin_paths() -> dict[str, Any]:
    key_id = {"name": "key_id", "in": "path", "required": True, "schema": {"type": "string"}}
    filters = [
        {"name": "account", "in": "query", "schema": {"type": "string"}},
        {"name": "include_revoked", "in": "query", "schema": {"type": "boolean", "default": False}},
    ]
    return {
        _KEYS: {
            "get": operation("List API keys (admin key)", "ApiKeyList", parameters=filters),
            "post": operation("Issue an API key (admin key)", "ApiKey", NewKey),
        },
        _KEYS + "/{key_id}": {
            "get": operation("Describe an API key (admin key)", "ApiKey", parameters=[key_id]),
            "post": operation("Change an API key's limits (admin key)", "ApiKey", KeyChange, parameters=[key_id]),
            "delete": operation("Revoke an API key (admin key)", "Deleted", parameters=[key_id]),
        },
        _KEYS + "/{key_id}/rotate": {
            "post": operation("Give an API key a new secret (admin key)", "ApiKey", Rotation, parameters=[key_id])
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


def _answer_schemas() -> dict[str, Any]:
    text, number = {"type": "string"}, {"type": "integer"}
    maybe_text = {"type": ["string", "null"]}
    usage = wire_object(prompt_tokens=number, completion_tokens=number, total_tokens=number)
    reason = {"enum": ["stop", "length", "content_filter", "tool_calls"]}
    message = wire_object(role={"const": "assistant"}, content=maybe_text, refusal=maybe_text)
    choice = wire_object(index=number, message=message, logprobs={"type": ["object", "null"]}, finish_reason=reason)
    text_choice = wire_object(index=number, text=text, finish_reason=reason)
    head = {"id": text, "created": number, "model": text}
    vector = {"oneOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string", "format": "byte"}]}
    embedding = wire_object(object={"const": "embedding"}, index=number, embedding=vector)
    return {
        "Error": wire_object(error=wire_object(message=text, type=text, param=maybe_text, code=maybe_text)),
        "ChatCompletion": wire_object(
            **head, object={"const": "chat.completion"}, choices={"type": "array", "items": choice}, usage=usage
        ),
        "Completion": wire_object(
            **head, object={"const": "text_completion"}, choices={"type": "array", "items": text_choice}, usage=usage
        ),
        "Embedding": embedding,
        "EmbeddingList": list_of("Embedding", model=text, usage=wire_object(prompt_tokens=number, total_tokens=number)),
        "Model": wire_object(id=text, object={"const": "model"}, created=number, owned_by=text),
        "ModelList": list_of("Model"),
        "ApiKey": wire_object(id=text, object={"const": "organization.api_key"}, name=text, tier=text),
        "ApiKeyList": list_of("ApiKey"),
        "File": wire_object(
            id=text,
            object={"const": "file"},
            bytes=number,
            created_at=number,
            expires_at=number,
            filename=text,
            purpose=text,
            status={"const": "processed"},
        ),
        "FileList": list_of("File", first_id=maybe_text, last_id=maybe_text, has_more={"type": "boolean"}),
        "FileUpload": wire_object(file={"type": "string", "format": "binary"}, purpose={"enum": list(PURPOSES)}),
        "Batch": wire_object(
            id=text,
            object={"const": "batch"},
            endpoint=text,
            input_file_id=text,
            status={"enum": list(STATUSES)},
            output_file_id=maybe_text,
            error_file_id=maybe_text,
            request_counts=wire_object(total=number, completed=number, failed=number),
        ),
        "BatchList": list_of("Batch", first_id=maybe_text, last_id=maybe_text, has_more={"type": "boolean"}),
        "Deleted": wire_object(id=text, object=text, deleted={"const": True}),
    }
