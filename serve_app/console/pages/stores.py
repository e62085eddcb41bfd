"""The account's vector stores: created, filled with files, searched, deleted."""

from typing import Any

import orjson
from starlette.responses import Response

from deployments.operations import Operation
from deployments.state.database.queries import Page
from deployments.state.files.store import StoredFile
from deployments.state.vector_stores.rows import StoredStore, StoreMissing
from serve_app.console.visit import Visit, redirect
from serve_app.errors.api import NotFound
from serve_app.operations.vector_stores.search import FileSearch
from serve_app.routes import files, vector_stores
from serve_app.routes.endpoint import trace_of
from serve_app.schemas.file_filters import SearchRequest
from serve_app.schemas.vector_stores import StoreCreateRequest, StoreFileRequest
from serve_app.validation.body import validate_body

_PAGE_SIZE = 50
_FILES_SHOWN = 100


async def list_stores(visit: Visit) -> Response:
    """Show the vector stores, newest first."""
    page = Page(_PAGE_SIZE, after=visit.after)
    try:
        found, has_more = await _search(visit).service.stores.list_stores(visit.account, page)
    except StoreMissing:
        raise NotFound("This account has no such vector store.") from None
    more = found[-1].store_id if has_more else ""
    return visit.page("vector_stores.html", stores=found, more=more)


async def create_store(visit: Visit) -> Response:
    """Create an empty vector store."""
    asked: dict[str, Any] = {"name": visit.fields.get("name", "").strip() or None}
    days = visit.fields.get("days", "").strip()
    if days:
        asked["expires_after"] = {"anchor": "last_active_at", "days": int(days) if days.isdecimal() else days}
    body = validate_body(asked, StoreCreateRequest)
    most = visit.services.tiers.of(visit.principal.tier).stored_objects
    store = await _search(visit).service.create(visit.principal, body, most)
    return redirect(f"/console/vector-stores/{store.store_id}")


async def show_store(visit: Visit, **found: Any) -> Response:
    """Show a vector store and the files in it, live while files are indexed."""
    service, store = _search(visit).service, await _find(visit)
    inside, _ = await service.files.list_files(visit.account, store.store_id, Page(_FILES_SHOWN))
    values: dict[str, Any] = {"store": store, "files": inside, "query": "", "hits": None, **found}
    if visit.is_fragment:
        return visit.page("vector_store_files.html", **values)
    return visit.page("vector_store.html", **values, others=await _others(visit, {file.file_id for file in inside}))


async def upload_file(visit: Visit) -> Response:
    """Store a file, and put it into a vector store."""
    await _find(visit)
    answer = await visit.call(files.create_file)
    return await _attach(visit, orjson.loads(answer.body)["id"])


async def add_file(visit: Visit) -> Response:
    """Put a stored file into a vector store."""
    return await _attach(visit, visit.fields.get("file", ""))


async def remove_file(visit: Visit) -> Response:
    """Take a file out of a vector store; the file itself stays."""
    store_id = vector_stores.store_id_of(visit.request)
    await _search(visit).service.detach(visit.account, store_id, visit.fields.get("file", ""))
    return redirect(f"/console/vector-stores/{store_id}?done=removed")


async def search_store(visit: Visit) -> Response:
    """Search a vector store; it counts as a request of the key."""
    query = visit.fields.get("query", "")
    body = validate_body({"query": query, "max_num_results": 10}, SearchRequest)
    search, trace = _search(visit), trace_of(visit.request)
    trace.principal = visit.principal
    async with await visit.services.admission.admit(visit.principal) as ticket:
        store_id = vector_stores.store_id_of(visit.request)
        hits = await vector_stores.find_hits(search, visit.principal, store_id, body, ticket, trace)
    return await show_store(visit, query=query, hits=hits)


async def delete_store(visit: Visit) -> Response:
    """Delete a vector store; its files stay."""
    await visit.call(vector_stores.delete_store)
    return redirect("/console/vector-stores?done=deleted")


async def _find(visit: Visit) -> StoredStore:
    return await _search(visit).service.find(visit.account, vector_stores.store_id_of(visit.request))


async def _attach(visit: Visit, file_id: str) -> Response:
    store = await _find(visit)
    body = validate_body({"file_id": file_id}, StoreFileRequest)
    await _search(visit).service.attach(visit.principal, store.store_id, [body], "file_id")
    return redirect(f"/console/vector-stores/{store.store_id}?done=added")


async def _others(visit: Visit, inside: set[str]) -> list[StoredFile]:
    """Return the account's newest files that could be added: not in the store, no input and no output of batches."""
    if not visit.may(Operation.FILES):
        return []
    found, _ = await visit.services.files.list_files(visit.account, Page(_FILES_SHOWN))
    return [file for file in found if file.file_id not in inside and not file.purpose.startswith("batch")]


def _search(visit: Visit) -> FileSearch:
    search = visit.services.file_search
    if search is None:
        raise NotFound("File search is off in this service. Ask the operator.")
    return search
