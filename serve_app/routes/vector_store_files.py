"""The files of /v1/vector_stores/{id}, added one by one (/files) or together (/file_batches)."""

from typing import Any, Generic, Literal, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from deployments.state.vector_stores.rows import StoreFileMissing
from serve_app.operations.vector_stores.service import translated
from serve_app.routes.endpoint import Deleted, answers, deleted_response, json_response
from serve_app.routes.paging import Page, list_to_wire, page_of, parse_query, unknown_cursor
from serve_app.routes.vector_stores import search_caller, store_caller, store_id_of
from serve_app.schemas.vector_stores import (
    StoreBatchRequest,
    StoreFileQuery,
    StoreFileRequest,
    StoreFileUpdateRequest,
    store_batch_to_wire,
    store_file_to_wire,
)
from serve_app.validation.body import parse_body

Text = TypeVar("Text")


class FileTexts(TypedDict, Generic[Text]):
    """The chunks of a file, all on one page."""

    object: Literal["vector_store.file_content.page"]
    data: list[Text]
    has_more: bool
    next_page: str | None


@answers("openai.types.vector_stores.VectorStoreFile", body=StoreFileRequest)
async def create_file(request: Request) -> Response:
    """Add a file to a vector store.

    The file is indexed after the answer.
    """
    principal, service = await store_caller(request)
    body, store_id = await parse_body(await request.body(), StoreFileRequest), store_id_of(request)
    await service.attach(principal, store_id, [body], "file_id")
    file = await service.find_file(principal.account, store_id, body.file_id)
    return json_response(store_file_to_wire(file))


@answers(Page, of="openai.types.vector_stores.VectorStoreFile", query=StoreFileQuery)
async def list_files(request: Request) -> Response:
    """List the files in a vector store."""
    return json_response(await _list(request, None))


@answers("openai.types.vector_stores.VectorStoreFile")
async def retrieve_file(request: Request) -> Response:
    """Retrieve a file in a vector store."""
    principal, service = await store_caller(request)
    file = await service.find_file(principal.account, store_id_of(request), request.path_params["file_id"])
    return json_response(store_file_to_wire(file))


@answers("openai.types.vector_stores.VectorStoreFile", body=StoreFileUpdateRequest)
async def update_file(request: Request) -> Response:
    """Update a file in a vector store.

    Replaces its attributes.
    """
    principal, service = await store_caller(request)
    body = await parse_body(await request.body(), StoreFileUpdateRequest)
    file = await service.set_attributes(
        principal.account, store_id_of(request), request.path_params["file_id"], body.attributes
    )
    return json_response(store_file_to_wire(file))


@answers(Deleted)
async def delete_file(request: Request) -> Response:
    """Remove a file from a vector store.

    The file itself is kept.
    """
    principal, service = await store_caller(request)
    file_id = request.path_params["file_id"]
    await service.detach(principal.account, store_id_of(request), file_id)
    return deleted_response(file_id, "vector_store.file.deleted")


@answers(FileTexts, of="openai.types.vector_stores.FileContentResponse")
async def show_content(request: Request) -> Response:
    """Retrieve the text of a file in a vector store.

    Returns the chunks that are searched.
    """
    principal, search = await search_caller(request)
    texts = await search.content(principal.account, store_id_of(request), request.path_params["file_id"])
    return json_response(
        {
            "object": "vector_store.file_content.page",
            "data": [{"type": "text", "text": text} for text in texts],
            "has_more": False,
            "next_page": None,
        }
    )


@answers("openai.types.vector_stores.VectorStoreFileBatch", body=StoreBatchRequest)
async def create_batch(request: Request) -> Response:
    """Add several files to a vector store.

    The files are indexed after the answer.
    """
    principal, service = await store_caller(request)
    body, store_id = await parse_body(await request.body(), StoreBatchRequest), store_id_of(request)
    param = "file_ids[{index}]" if body.files is None else "files[{index}].file_id"
    batch_id = await service.attach(principal, store_id, body.wanted, param, batch=True)
    batch = await service.find_batch(principal.account, store_id, batch_id)
    return json_response(store_batch_to_wire(batch))


@answers("openai.types.vector_stores.VectorStoreFileBatch")
async def retrieve_batch(request: Request) -> Response:
    """Retrieve a batch of files.

    Returns the batch with its progress.
    """
    principal, service = await store_caller(request)
    batch = await service.find_batch(principal.account, store_id_of(request), request.path_params["batch_id"])
    return json_response(store_batch_to_wire(batch))


@answers("openai.types.vector_stores.VectorStoreFileBatch")
async def cancel_batch(request: Request) -> Response:
    """Cancel a batch of files.

    Files that are indexed already stay in the vector store.
    """
    principal, service = await store_caller(request)
    batch = await service.cancel_batch(principal.account, store_id_of(request), request.path_params["batch_id"])
    return json_response(store_batch_to_wire(batch))


@answers(Page, of="openai.types.vector_stores.VectorStoreFile", query=StoreFileQuery)
async def list_batch_files(request: Request) -> Response:
    """List the files of a batch."""
    principal, service = await store_caller(request)
    await service.find_batch(principal.account, store_id_of(request), request.path_params["batch_id"])
    return json_response(await _list(request, request.path_params["batch_id"]))


async def _list(request: Request, batch_id: str | None) -> Page[dict[str, Any]]:
    principal, service = await store_caller(request)
    query, store_id = parse_query(request, StoreFileQuery), store_id_of(request)
    with translated(store_id):
        try:
            found, has_more = await service.files.list_files(
                principal.account, store_id, page_of(query), query.filter, batch_id
            )
        except StoreFileMissing:
            raise unknown_cursor(query) from None
    return list_to_wire([store_file_to_wire(file) for file in found], has_more=has_more)
