"""The ASGI application: the table of routes, and the middleware that every request passes.

`ingress` creates it over its services, tests over twins.
"""

from collections.abc import Sequence
from dataclasses import replace

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from deployments.operations import ENGINE_OPERATIONS, MODEL_OPERATIONS
from serve_app.console import routes as console
from serve_app.documentation import pages as documentation
from serve_app.errors.api import ClientGone, MethodNotAllowed, UnknownUrl
from serve_app.http.body_limits import BodyLimitMiddleware
from serve_app.http.middleware import RequestMiddleware
from serve_app.http.nearest_route import nearest_route
from serve_app.operations.moderations import ModerationOperation
from serve_app.operations.registry import find_engine_operation
from serve_app.routes import (
    batches,
    containers,
    conversations,
    files,
    generation,
    health,
    keys,
    limits,
    logs,
    messages,
    models,
    organization_keys,
    responses,
    responses_socket,
    stored_chats,
    uploads,
    usage,
    vector_store_files,
    vector_stores,
    webhooks,
)
from serve_app.services import Services

_MAX_PAGE_FORM_BYTES = 1024 * 1024
_EXPOSED_HEADERS = (
    "openai-organization",
    "openai-processing-ms",
    "retry-after",
    "retry-after-ms",
    "x-request-id",
    *(f"x-ratelimit-{kind}-{noun}" for noun in ("requests", "tokens") for kind in ("limit", "remaining", "reset")),
)
_KEYS = "/v1/organization/admin/keys"
_ADMIN_BATCHES = "/v1/organization/admin/batches"
_ADMIN_KEYS = "/v1/organization/admin_api_keys"
_PROJECTS = "/v1/organization/projects"
_USAGE = "/v1/organization/usage"
_FILES = "/v1/files"
_UPLOADS = "/v1/uploads"
_BATCHES = "/v1/batches"
_CHATS = "/v1/chat/completions"
_CHAT = _CHATS + "/{completion_id}"
_RESPONSE = "/v1/responses/{response_id}"
_CONVERSATION = "/v1/conversations/{conversation_id}"
_CONTAINER = "/v1/containers/{container_id}"
_STORE = "/v1/vector_stores/{vector_store_id}"
_WEBHOOKS = "/v1/webhook_endpoints"
_WEBHOOK = _WEBHOOKS + "/{webhook_endpoint_id}"

_OPERATIONS = [
    Route(path, generation.create_endpoint(find_engine_operation(name)), methods=["POST"])
    for name in ENGINE_OPERATIONS
    for path in MODEL_OPERATIONS[name].paths
]

ROUTES = [
    *_OPERATIONS,
    Route(_CHATS, stored_chats.list_chat_completions),
    Route(_CHAT, stored_chats.retrieve_chat_completion),
    Route(_CHAT, stored_chats.update_chat_completion, methods=["POST"]),
    Route(_CHAT, stored_chats.delete_chat_completion, methods=["DELETE"]),
    Route(_CHAT + "/messages", stored_chats.list_chat_messages),
    Route("/v1/messages", messages.create_message, methods=["POST"]),
    Route("/v1/messages/count_tokens", messages.count_message_tokens, methods=["POST"]),
    Route("/v1/moderations", generation.create_endpoint(ModerationOperation), methods=["POST"]),
    Route(_FILES, files.list_files),
    Route(_FILES, files.create_file, methods=["POST"]),
    Route(_FILES + "/{file_id}", files.retrieve_file),
    Route(_FILES + "/{file_id}", files.delete_file, methods=["DELETE"]),
    Route(_FILES + "/{file_id}/content", files.download_file),
    Route(_UPLOADS, uploads.create_upload, methods=["POST"]),
    Route(_UPLOADS + "/{upload_id}/parts", uploads.create_part, methods=["POST"]),
    Route(_UPLOADS + "/{upload_id}/complete", uploads.complete_upload, methods=["POST"]),
    Route(_UPLOADS + "/{upload_id}/cancel", uploads.cancel_upload, methods=["POST"]),
    Route(_BATCHES, batches.list_batches),
    Route(_BATCHES, batches.create_batch, methods=["POST"]),
    Route(_BATCHES + "/{batch_id}", batches.retrieve_batch),
    Route(_BATCHES + "/{batch_id}/cancel", batches.cancel_batch, methods=["POST"]),
    Route("/v1/responses", responses.create_response, methods=["POST"]),
    Route("/v1/responses/input_tokens", responses.count_input_tokens, methods=["POST"]),
    Route("/v1/responses/compact", responses.compact_response, methods=["POST"]),
    Route(_RESPONSE, responses.retrieve_response),
    Route(_RESPONSE, responses.delete_response, methods=["DELETE"]),
    Route(_RESPONSE + "/cancel", responses.cancel_response, methods=["POST"]),
    Route(_RESPONSE + "/input_items", responses.list_input_items),
    Route("/v1/conversations", conversations.create_conversation, methods=["POST"]),
    Route(_CONVERSATION, conversations.retrieve_conversation),
    Route(_CONVERSATION, conversations.update_conversation, methods=["POST"]),
    Route(_CONVERSATION, conversations.delete_conversation, methods=["DELETE"]),
    Route(_CONVERSATION + "/items", conversations.list_items),
    Route(_CONVERSATION + "/items", conversations.create_items, methods=["POST"]),
    Route(_CONVERSATION + "/items/{item_id}", conversations.retrieve_item),
    Route(_CONVERSATION + "/items/{item_id}", conversations.delete_item, methods=["DELETE"]),
    Route("/v1/containers", containers.list_containers),
    Route("/v1/containers", containers.create_container, methods=["POST"]),
    Route(_CONTAINER, containers.retrieve_container),
    Route(_CONTAINER, containers.delete_container, methods=["DELETE"]),
    Route(_CONTAINER + "/files", containers.list_files),
    Route(_CONTAINER + "/files", containers.create_file, methods=["POST"]),
    Route(_CONTAINER + "/files/{file_id}", containers.retrieve_file),
    Route(_CONTAINER + "/files/{file_id}", containers.delete_file, methods=["DELETE"]),
    Route(_CONTAINER + "/files/{file_id}/content", containers.download_file),
    Route("/v1/vector_stores", vector_stores.list_stores),
    Route("/v1/vector_stores", vector_stores.create_store, methods=["POST"]),
    Route(_STORE, vector_stores.retrieve_store),
    Route(_STORE, vector_stores.update_store, methods=["POST"]),
    Route(_STORE, vector_stores.delete_store, methods=["DELETE"]),
    Route(_STORE + "/search", vector_stores.search_store, methods=["POST"]),
    Route(_STORE + "/files", vector_store_files.list_files),
    Route(_STORE + "/files", vector_store_files.create_file, methods=["POST"]),
    Route(_STORE + "/files/{file_id}", vector_store_files.retrieve_file),
    Route(_STORE + "/files/{file_id}", vector_store_files.update_file, methods=["POST"]),
    Route(_STORE + "/files/{file_id}", vector_store_files.delete_file, methods=["DELETE"]),
    Route(_STORE + "/files/{file_id}/content", vector_store_files.show_content),
    Route(_STORE + "/file_batches", vector_store_files.create_batch, methods=["POST"]),
    Route(_STORE + "/file_batches/{batch_id}", vector_store_files.retrieve_batch),
    Route(_STORE + "/file_batches/{batch_id}/cancel", vector_store_files.cancel_batch, methods=["POST"]),
    Route(_STORE + "/file_batches/{batch_id}/files", vector_store_files.list_batch_files),
    Route(_WEBHOOKS, webhooks.list_endpoints),
    Route(_WEBHOOKS, webhooks.create_endpoint, methods=["POST"]),
    Route(_WEBHOOK, webhooks.retrieve_endpoint),
    Route(_WEBHOOK, webhooks.update_endpoint, methods=["POST"]),
    Route(_WEBHOOK, webhooks.delete_endpoint, methods=["DELETE"]),
    Route(_WEBHOOK + "/test", webhooks.test_endpoint, methods=["POST"]),
    Route(_WEBHOOK + "/rotate_secret", webhooks.rotate_secret, methods=["POST"]),
    Route("/v1/webhook_event_types", webhooks.list_event_types),
    Route("/v1/models", models.list_models),
    Route("/v1/models/{model:path}", models.retrieve_model),
    Route(_KEYS, keys.list_keys),
    Route(_KEYS, keys.create_key, methods=["POST"]),
    Route(_KEYS + "/{key_id}", keys.show_key),
    Route(_KEYS + "/{key_id}", keys.limit_key, methods=["POST"]),
    Route(_KEYS + "/{key_id}", keys.revoke_key, methods=["DELETE"]),
    Route(_KEYS + "/{key_id}/rotate", keys.rotate_key, methods=["POST"]),
    Route(_ADMIN_BATCHES, batches.list_all_batches),
    Route(_ADMIN_BATCHES + "/{batch_id}/pause", batches.pause_batch, methods=["POST"]),
    Route(_ADMIN_BATCHES + "/{batch_id}/resume", batches.resume_batch, methods=["POST"]),
    Route(_ADMIN_BATCHES + "/{batch_id}/cancel", batches.cancel_any_batch, methods=["POST"]),
    Route(_ADMIN_KEYS, organization_keys.list_admin_keys),
    Route(_ADMIN_KEYS, organization_keys.create_admin_key, methods=["POST"]),
    Route(_ADMIN_KEYS + "/{key_id}", organization_keys.show_admin_key),
    Route(_ADMIN_KEYS + "/{key_id}", organization_keys.revoke_admin_key, methods=["DELETE"]),
    Route(_PROJECTS, organization_keys.list_projects),
    Route(_PROJECTS + "/{project_id}", organization_keys.show_project),
    Route(_PROJECTS + "/{project_id}/api_keys", organization_keys.list_project_keys),
    Route(_PROJECTS + "/{project_id}/api_keys/{key_id}", organization_keys.show_project_key),
    Route(_PROJECTS + "/{project_id}/api_keys/{key_id}", organization_keys.revoke_project_key, methods=["DELETE"]),
    Route(_USAGE + "/completions", usage.show_completions),
    Route(_USAGE + "/embeddings", usage.show_embeddings),
    Route(_USAGE + "/moderations", usage.show_moderations),
    Route(_USAGE + "/vector_stores", usage.show_vector_stores),
    Route(_USAGE + "/code_interpreter_sessions", usage.show_code_sessions),
    Route(_USAGE + "/file_search_calls", usage.show_file_searches),
    Route(_USAGE + "/web_search_calls", usage.show_web_searches),
    Route("/v1/organization/costs", usage.show_costs),
    Route("/v1/organization/requests", logs.list_requests),
    Route("/v1/organization/limits", limits.list_limits),
    Route("/v1/organization/latency", limits.show_latency),
    Route("/v1/organization/audit_logs", logs.list_audit_logs),
    Route("/openapi.json", documentation.show_document),
    Route("/docs", documentation.show_start),
    Route("/livez", health.report_liveness),
    Route("/readyz", health.report_readiness),
    Route("/ping", health.report_health),
    Route("/health", health.report_health),
    Route("/metrics", health.show_metrics),
]


def create_asgi_app(services: Services, outermost: Sequence[Middleware] = ()) -> Starlette:
    """Return the application over the given services, which holds no state of its own.

    `outermost` is the middleware that a request passes first: that of the ingress replica.
    """
    pages = [*console.ASSETS, *documentation.ROUTES, *([] if services.console is None else console.ROUTES)]
    app = Starlette(
        routes=[*ROUTES, *pages, WebSocketRoute("/v1/responses", responses_socket.serve_socket)],
        middleware=[
            *outermost,
            *_cors(services.cors_origins),
            Middleware(
                RequestMiddleware,
                admission=services.admission,
                observer=services.observer,
                routes={
                    **{route.endpoint: route.path for route in ROUTES},
                    **{page.endpoint: console.COUNTED_AS.get(page.path, page.path) for page in pages},
                },
            ),
            Middleware(
                BodyLimitMiddleware,
                bounds=services.body_bounds,
                exceptions={_FILES: services.upload_bounds()},
                below={
                    _UPLOADS + "/": services.part_bounds(),
                    console.UPLOADS: services.upload_bounds(),
                    console.PLAYGROUND: services.body_bounds,
                    "/console/": replace(services.body_bounds, max_bytes=_MAX_PAGE_FORM_BYTES),
                },
            ),
        ],
        exception_handlers={HTTPException: _answer_unrouted, ClientDisconnect: _note_departure},
    )
    app.router.redirect_slashes = False
    app.state.services = services
    app.state.documented = ROUTES
    return app


def _cors(origins: Sequence[str]) -> list[Middleware]:
    """Return what lets web pages of some origins call the service: outermost, so that they may read errors too."""
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=_EXPOSED_HEADERS,
        )
    ]


async def _answer_unrouted(request: Request, error: Exception) -> Response:
    """Answer OPTIONS with what a path allows; refuse every other request that no route takes."""
    path = request.scope["path"]
    pages = [] if request.app.state.services.console is None else console.ROUTES
    allowed = {method for route in (*ROUTES, *pages) if route.path_regex.match(path) for method in route.methods or ()}
    if not allowed:
        raise _unknown_url(request.method, path, has_console=bool(pages))
    if request.method == "OPTIONS":
        return Response(status_code=204, headers={"allow": ", ".join(sorted({*allowed, "OPTIONS"}))})
    raise MethodNotAllowed(request.method, path, tuple(sorted(allowed)))


def _unknown_url(method: str, path: str, *, has_console: bool) -> UnknownUrl:
    if meant := _meant_by(path):
        return UnknownUrl(method, path, meant=meant)
    if path.rstrip("/") == "/v1":
        beside = ", and the console is at /console" if has_console else ""
        return UnknownUrl(method, path, advice=f"This is the base URL of clients. Its routes are at /docs{beside}.")
    nearest = nearest_route(method, path, ROUTES)
    return UnknownUrl(method, path, advice=f"Did you mean {nearest}?" if nearest else "")


def _meant_by(path: str) -> str:
    """Return the path of the API that a client means whose base URL lacks /v1, or has it twice; "" if it is neither."""
    meant = path.removeprefix("/v1") if path.startswith("/v1/v1/") else f"/v1{path}"
    return meant if any(route.path_regex.match(meant) for route in ROUTES) else ""


async def _note_departure(request: Request, error: Exception) -> Response:
    raise ClientGone
