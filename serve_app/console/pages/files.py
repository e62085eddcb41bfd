"""The account's files and vector stores: listed, uploaded, downloaded, searched, deleted."""

from typing import Any

from starlette.responses import Response

from deployments.state.database.queries import Page
from deployments.state.files.store import FileNotFound
from deployments.state.vector_stores.rows import StoreMissing
from serve_app.console.visit import Visit, redirect
from serve_app.errors.api import NotFound
from serve_app.operations.vector_stores.search import FileSearch
from serve_app.routes import files, vector_stores
from serve_app.routes.endpoint import trace_of
from serve_app.schemas.file_filters import SearchRequest
from serve_app.validation.body import validate_body

_PAGE_SIZE = 50


async def list_files(visit: Visit) -> Response:
    """Show the files, newest first."""
    page = Page(_PAGE_SIZE, after=visit.after)
    try:
        found, has_more = await visit.services.files.list_files(visit.account, page)
    except FileNotFound:
        raise NotFound("This account has no such file.") from None
    more = found[-1].file_id if has_more else ""
    return visit.page("files.html", files=found, more=more)


async def upload_file(visit: Visit) -> Response:
    """Store a file."""
    await visit.call(files.create_file)
    return redirect("/console/files?done=stored")


async def download_file(visit: Visit) -> Response:
    """Send a file's content, for browsers to save and never to show."""
    return await visit.call(files.download_file)


async def delete_file(visit: Visit) -> Response:
    """Delete a file."""
    await visit.call(files.delete_file)
    return redirect("/console/files?done=deleted")


async def list_stores(visit: Visit) -> Response:
    """Show the vector stores, newest first."""
    page = Page(_PAGE_SIZE, after=visit.after)
    try:
        found, has_more = await _search(visit).service.stores.list_stores(visit.account, page)
    except StoreMissing:
        raise NotFound("This account has no such vector store.") from None
    more = found[-1].store_id if has_more else ""
    return visit.page("vector_stores.html", stores=found, more=more)


async def show_store(visit: Visit) -> Response:
    """Show a vector store and the files in it."""
    return await _show(visit)


async def search_store(visit: Visit) -> Response:
    """Search a vector store; it counts as a request of the key."""
    query = visit.fields.get("query", "")
    body = validate_body({"query": query, "max_num_results": 10}, SearchRequest)
    search, trace = _search(visit), trace_of(visit.request)
    trace.principal = visit.principal
    async with await visit.services.admission.admit(visit.principal) as ticket:
        store_id = vector_stores.store_id_of(visit.request)
        hits = await vector_stores.find_hits(search, visit.principal, store_id, body, ticket, trace)
    return await _show(visit, query=query, hits=hits)


async def delete_store(visit: Visit) -> Response:
    """Delete a vector store; its files stay."""
    await visit.call(vector_stores.delete_store)
    return redirect("/console/vector-stores?done=deleted")


async def _show(visit: Visit, **found: Any) -> Response:
    service, store_id = _search(visit).service, vector_stores.store_id_of(visit.request)
    store = await service.find(visit.account, store_id)
    files, _ = await service.files.list_files(visit.account, store_id, Page(100))
    values: dict[str, Any] = {"store": store, "files": files, "query": "", "hits": None, **found}
    return visit.page("vector_store.html", **values)


def _search(visit: Visit) -> FileSearch:
    search = visit.services.file_search
    if search is None:
        raise NotFound("File search is off in this service. Ask the operator.")
    return search
