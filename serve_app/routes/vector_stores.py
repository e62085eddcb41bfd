"""/v1/vector_stores: create, list, retrieve, update, delete, search."""

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from deployments.models.contract.engine import Usage
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from deployments.state.vector_stores.rows import StoreMissing
from serve_app.errors.api import BadRequest, NotFound
from serve_app.http.admission import Ticket
from serve_app.http.departure import while_connected
from serve_app.operations.contract import Cost
from serve_app.operations.vector_stores.search import FileSearch, Hit, SearchOptions
from serve_app.operations.vector_stores.service import VectorStoreService
from serve_app.routes.endpoint import (
    Deleted,
    answers,
    caller,
    deleted_response,
    json_response,
    reserve,
    services_of,
    trace_of,
)
from serve_app.routes.paging import Page, list_to_wire, page_of, parse_query, unknown_cursor
from serve_app.schemas.base import TwoWayQuery, estimate_tokens
from serve_app.schemas.file_filters import RankingOptions, SearchRequest
from serve_app.schemas.vector_stores import StoreCreateRequest, StoreUpdateRequest, store_to_wire
from serve_app.telemetry.trace import RequestTrace
from serve_app.validation.body import parse_body

_DEFAULT_RESULTS = 10

Result = TypeVar("Result")


class SearchResults(TypedDict, Generic[Result]):
    """The results of a search, all on one page."""

    object: Literal["vector_store.search_results.page"]
    search_query: list[str]
    data: list[Result]
    has_more: bool
    next_page: str | None


@answers("openai.types.VectorStore", body=StoreCreateRequest)
async def create_store(request: Request) -> Response:
    """Create a vector store.

    Its files are indexed after the answer.
    """
    principal, service = await store_caller(request)
    body = await parse_body(await request.body() or b"{}", StoreCreateRequest)
    max_objects = services_of(request).tiers.of(principal.tier).stored_objects
    return json_response(store_to_wire(await service.create(principal, body, max_objects)))


@answers(Page, of="openai.types.VectorStore", query=TwoWayQuery)
async def list_stores(request: Request) -> Response:
    """List vector stores."""
    principal, service = await store_caller(request)
    query = parse_query(request, TwoWayQuery)
    try:
        found, has_more = await service.stores.list_stores(principal.account, page_of(query))
    except StoreMissing:
        raise unknown_cursor(query) from None
    return json_response(list_to_wire([store_to_wire(store) for store in found], has_more=has_more))


@answers("openai.types.VectorStore")
async def retrieve_store(request: Request) -> Response:
    """Retrieve a vector store."""
    principal, service = await store_caller(request)
    return json_response(store_to_wire(await service.find(principal.account, store_id_of(request))))


@answers("openai.types.VectorStore", body=StoreUpdateRequest)
async def update_store(request: Request) -> Response:
    """Update a vector store.

    Changes its name, metadata or expiry.
    """
    principal, service = await store_caller(request)
    body = await parse_body(await request.body(), StoreUpdateRequest)
    return json_response(store_to_wire(await service.update(principal.account, store_id_of(request), body)))


@answers(Deleted)
async def delete_store(request: Request) -> Response:
    """Delete a vector store.

    The files that were in it are kept.
    """
    principal, service = await store_caller(request)
    store_id = store_id_of(request)
    await service.delete(principal.account, store_id)
    return deleted_response(store_id, "vector_store.deleted")


@answers(SearchResults, of="openai.types.VectorStoreSearchResponse", body=SearchRequest)
async def search_store(request: Request) -> Response:
    """Search a vector store."""
    principal, search = await search_caller(request, takes_ticket=True)
    async with await services_of(request).admission.admit(principal) as ticket:
        body = await parse_body(await request.body(), SearchRequest)
        looking = find_hits(search, principal, store_id_of(request), body, ticket, trace_of(request))
        hits = await while_connected(request.receive, looking)
    return json_response(results_to_wire(body.queries, hits))


async def find_hits(
    search: FileSearch, principal: Principal, store_id: str, body: SearchRequest, ticket: Ticket, trace: RequestTrace
) -> Sequence[Hit]:
    """Return the results of a search in a vector store; settle the ticket with its tokens.

    Raises:
        BadRequest: `rewrite_query` is set.
        NotFound: the account has no such store.
        RateLimited: the key's tokens of this minute do not suffice.
    """
    if body.rewrite_query:
        raise BadRequest(
            "Unsupported value: 'rewrite_query' does not support true: no model rewrites queries here. Write the "
            "query in the words of the files.",
            param="rewrite_query",
            code="unsupported_value",
        )
    options = SearchOptions(
        max_num_results=body.max_num_results or _DEFAULT_RESULTS,
        filters=body.filters.model_dump() if body.filters is not None else None,
        ranking=body.ranking_options or RankingOptions(),
    )
    stores = await search.find_stores(principal.account, [store_id])
    await reserve(ticket, trace, Cost(stores[0].embedding_model, estimate_tokens(body.queries), 0, 0))
    found = await search.search(principal, stores, body.queries, options, request_id=trace.request_id)
    trace.usage = Usage(prompt_tokens=found.num_tokens)
    ticket.settle(trace.usage)
    return found.hits


async def store_caller(request: Request) -> tuple[Principal, VectorStoreService]:
    """Return the holder of the key, and the vector stores; raises as `search_caller` does."""
    principal, search = await search_caller(request)
    return principal, search.service


async def search_caller(request: Request, *, takes_ticket: bool = False) -> tuple[Principal, FileSearch]:
    """Return the holder of the key, and the search over files.

    Raises:
        NotFound: file search is switched off.
        ApiError: as `caller` does.
    """
    principal = await caller(request, Operation.FILE_SEARCH, takes_ticket=takes_ticket)
    search = services_of(request).file_search
    if search is None:
        raise NotFound("File search is not switched on in this service. Ask the operator.")
    return principal, search


def store_id_of(request: Request) -> str:
    """Return the id of the vector store in the path."""
    store_id: str = request.path_params["vector_store_id"]
    return store_id


def results_to_wire(queries: Sequence[str], hits: Sequence[Hit]) -> SearchResults[Any]:
    """Return the results of a search for a client."""
    data = [
        {
            "file_id": hit.file.file_id,
            "filename": hit.file.filename,
            "score": hit.score,
            "attributes": dict(hit.file.attributes),
            "content": [{"type": "text", "text": hit.text}],
        }
        for hit in hits
    ]
    return {
        "object": "vector_store.search_results.page",
        "search_query": list(queries),
        "data": data,
        "has_more": False,
        "next_page": None,
    }
