"""The ASGI application: which path leads where, and what every request passes on its way."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from serve_app.errors import ApiError, ClientGone, MethodNotAllowed, UnknownUrl
from serve_app.middleware import Bounds, Front
from serve_app.routes import generation, health, models
from serve_app.services import Services

ROUTES = [
    Route("/v1/chat/completions", generation.create_chat_completion, methods=["POST"]),
    Route("/v1/completions", generation.create_completion, methods=["POST"]),
    Route("/v1/embeddings", generation.create_embeddings, methods=["POST"]),
    Route("/v1/models", models.list_models),
    Route("/v1/models/{model:path}", models.retrieve_model),
    Route("/livez", health.report_liveness),
    Route("/readyz", health.report_readiness),
    Route("/metrics", health.show_metrics),
]


def create_asgi_app(services: Services) -> Starlette:
    """Return the HTTP front over the given services; it holds no state of its own."""
    app = Starlette(
        routes=ROUTES,
        middleware=[
            Middleware(
                Front,
                admission=services.admission,
                observer=services.observer,
                routes={route.endpoint: route.path for route in ROUTES},
            ),
            Middleware(Bounds, bounds=services.body_bounds),
        ],
        exception_handlers={HTTPException: _answer_unrouted, ClientDisconnect: _note_departure},
    )
    app.router.redirect_slashes = False
    app.state.services = services
    return app


async def _answer_unrouted(request: Request, error: Exception) -> Response:
    """Answer OPTIONS with what a path allows; refuse every other request that no route takes."""
    assert isinstance(error, HTTPException)
    allowed = tuple(sorted((error.headers or {}).get("Allow", "").split(", ")))
    if error.status_code == 404:
        raise UnknownUrl(request.method, request.url.path)
    if error.status_code != 405:
        raise ApiError
    if request.method == "OPTIONS":
        return Response(status_code=204, headers={"allow": ", ".join((*allowed, "OPTIONS"))})
    raise MethodNotAllowed(request.method, request.url.path, allowed)


async def _note_departure(request: Request, error: Exception) -> Response:
    raise ClientGone
