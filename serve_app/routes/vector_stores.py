"""/v1/vector_stores: collections of files to be searched, made and ended by hand, and the search itself."""

from starlette.requests import Request
from starlette.responses import Response

from deployments.state.protocol import Principal
from deployments.state.vector_store_rows import StoreMissing
from deployments.state.vector_stores import StorePage
from serve_app.body import parse_json_body
from serve_app.errors import NotFound
from serve_app.operations.file_search.stores import StoreDesk
from serve_app.operations.scopes import check_operation
from serve_app.routes.access import caller, json_response, services_of
from serve_app.routes.paging import list_to_wire, page_query, unknown_after
from serve_app.routes.storage import storage_errors
from serve_app.schemas.vector_stores import StoreCreateRequest, StoreUpdateRequest, store_to_wire

SCOPE = "file_search"


async def create_store(request: Request) -> Response:
    """Make a vector store; the files in it are indexed after the answer."""
    principal, desk = await store_caller(request)
    body = parse_json_body(await request.body() or b"{}", StoreCreateRequest)
    with storage_errors():
        return json_response(store_to_wire(await desk.create(principal, body)))


async def list_stores(request: Request) -> Response:
    """Return the account's vector stores, in pages."""
    principal, desk = await store_caller(request)
    query = page_query(request)
    with storage_errors():
        try:
            page = StorePage(query.limit, query.is_ascending, query.after)
            found, has_more = await desk.list_stores(principal.account, page)
        except StoreMissing:
            raise unknown_after(query.after or "") from None
    return json_response(list_to_wire([store_to_wire(store) for store in found], has_more=has_more))


async def retrieve_store(request: Request) -> Response:
    """Return a vector store."""
    principal, desk = await store_caller(request)
    with storage_errors():
        return json_response(store_to_wire(await desk.find(principal.account, store_id_of(request))))


async def update_store(request: Request) -> Response:
    """Change a vector store's name, metadata or expiry."""
    principal, desk = await store_caller(request)
    body = parse_json_body(await request.body(), StoreUpdateRequest)
    with storage_errors():
        return json_response(store_to_wire(await desk.update(principal.account, store_id_of(request), body)))


async def delete_store(request: Request) -> Response:
    """Destroy a vector store; the files that were in it stay."""
    principal, desk = await store_caller(request)
    store_id = store_id_of(request)
    with storage_errors():
        await desk.delete(principal.account, store_id)
    return json_response({"id": store_id, "object": "vector_store.deleted", "deleted": True})


async def store_caller(request: Request) -> tuple[Principal, StoreDesk]:
    """Return who asks, and the vector stores.

    Raises:
        NotFound: there are none in this service.
        ApiError: the key is not valid, or may not search files.
    """
    principal = await caller(request)
    check_operation(principal, SCOPE)
    desk = services_of(request).vector_stores
    if desk is None:
        raise NotFound("File search is not switched on in this service. Ask the operator.")
    return principal, desk


def store_id_of(request: Request) -> str:
    """Return the id of the vector store in the path."""
    store_id: str = request.path_params["vector_store_id"]
    return store_id
