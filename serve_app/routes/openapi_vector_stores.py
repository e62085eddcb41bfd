"""Vector stores, as the OpenAPI document tells of them."""

from typing import Any

from pydantic import BaseModel

from serve_app.routes.openapi_parts import in_path, list_of, operation, wire_object
from serve_app.schemas.file_filters import SearchRequest
from serve_app.schemas.vector_stores import (
    StoreBatchRequest,
    StoreCreateRequest,
    StoreFileRequest,
    StoreFileUpdateRequest,
    StoreUpdateRequest,
)

VECTOR_STORE_BODIES: tuple[type[BaseModel], ...] = (
    StoreCreateRequest,
    StoreUpdateRequest,
    StoreFileRequest,
    StoreFileUpdateRequest,
    StoreBatchRequest,
    SearchRequest,
)
_STORES = "/v1/vector_stores"
_STORE = _STORES + "/{vector_store_id}"
_FILE = _STORE + "/files/{file_id}"
_BATCHES = _STORE + "/file_batches"


def vector_store_paths(page: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the paths of vector stores, their files and batches of those; `page` are the parameters of lists."""
    store = [in_path("vector_store_id")]
    file, batch = [*store, in_path("file_id")], [*store, in_path("batch_id")]
    status = {"name": "filter", "in": "query", "schema": {"enum": ["in_progress", "completed", "failed", "cancelled"]}}
    files = [*store, *page, status]
    return {
        _STORES: {
            "get": operation("List vector stores", "VectorStoreList", parameters=page),
            "post": operation("Create a vector store", "VectorStore", StoreCreateRequest),
        },
        _STORE: {
            "get": operation("Describe a vector store", "VectorStore", parameters=store),
            "post": operation("Change a vector store", "VectorStore", StoreUpdateRequest, parameters=store),
            "delete": operation("Destroy a vector store", "Deleted", parameters=store),
        },
        _STORE + "/files": {
            "get": operation("List the files in a vector store", "VectorStoreFileList", parameters=files),
            "post": operation("Put a file into a vector store", "VectorStoreFile", StoreFileRequest, parameters=store),
        },
        _FILE: {
            "get": operation("Describe a file in a vector store", "VectorStoreFile", parameters=file),
            "post": operation(
                "Change a file's attributes in a vector store",
                "VectorStoreFile",
                StoreFileUpdateRequest,
                parameters=file,
            ),
            "delete": operation("Take a file out of a vector store", "Deleted", parameters=file),
        },
        _FILE + "/content": {
            "get": operation("Show a file's text, as it is searched", "VectorStoreContent", parameters=file)
        },
        _STORE + "/search": {
            "post": operation("Search a vector store", "VectorStoreResults", SearchRequest, parameters=store)
        },
        _BATCHES: {
            "post": operation(
                "Put files into a vector store together", "VectorStoreFileBatch", StoreBatchRequest, parameters=store
            )
        },
        _BATCHES + "/{batch_id}": {
            "get": operation("Describe a batch of files", "VectorStoreFileBatch", parameters=batch)
        },
        _BATCHES + "/{batch_id}/cancel": {
            "post": operation("Cancel a batch of files", "VectorStoreFileBatch", parameters=batch)
        },
        _BATCHES + "/{batch_id}/files": {
            "get": operation("List the files of a batch", "VectorStoreFileList", parameters=[*batch, *page, status])
        },
    }


def vector_store_schemas() -> dict[str, Any]:
    """Return the schemas of what these paths answer with."""
    text, number = {"type": "string"}, {"type": "integer"}
    pages: dict[str, Any] = {name: {"type": ["string", "null"]} for name in ("first_id", "last_id")}
    pages["has_more"] = {"type": "boolean"}
    names = ("in_progress", "completed", "failed", "cancelled", "total")
    counts = wire_object(**dict.fromkeys(names, number))
    texts = {"type": "array", "items": wire_object(type={"const": "text"}, text=text)}
    head = {"id": text, "created_at": number, "vector_store_id": text}
    return {
        "VectorStore": wire_object(
            id=text,
            object={"const": "vector_store"},
            created_at=number,
            name=text,
            usage_bytes=number,
            file_counts=counts,
            status={"enum": ["expired", "in_progress", "completed"]},
            last_active_at=number,
        ),
        "VectorStoreList": list_of("VectorStore", **pages),
        "VectorStoreFile": wire_object(
            **head,
            object={"const": "vector_store.file"},
            status={"enum": ["in_progress", "completed", "cancelled", "failed"]},
            usage_bytes=number,
        ),
        "VectorStoreContent": wire_object(object={"const": "vector_store.file_content.page"}, data=texts),
        "VectorStoreResults": wire_object(
            object={"const": "vector_store.search_results.page"},
            search_query={"type": "array", "items": text},
            data={
                "type": "array",
                "items": wire_object(file_id=text, filename=text, score={"type": "number"}, content=texts),
            },
        ),
        "VectorStoreFileList": list_of("VectorStoreFile", **pages),
        "VectorStoreFileBatch": wire_object(
            **head,
            object={"const": "vector_store.files_batch"},
            status={"enum": ["in_progress", "completed", "cancelled"]},
            file_counts=counts,
        ),
    }
