"""The paths that a browser tries by itself at the service's address: / and /favicon.ico."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from serve_app.console.rendering import address_of
from serve_app.errors.api import UnknownUrl
from serve_app.routes.endpoint import services_of


async def show_home(request: Request) -> Response:
    """Lead a browser to the console, or to the reference where there is no console.

    Raises:
        UnknownUrl: a client of the API asked; its base URL lacks /v1.
    """
    if "text/html" in request.headers.get("accept", ""):
        place = "/docs" if services_of(request).console is None else "/console"
        return RedirectResponse(place, 303, headers={"cache-control": "no-store", "vary": "accept"})
    raise UnknownUrl(request.method, request.url.path, meant="/v1")


async def show_icon(request: Request) -> Response:
    """Lead to the service's icon."""
    return RedirectResponse(address_of("manta.svg"), 303)
