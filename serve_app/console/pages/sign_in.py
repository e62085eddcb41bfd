"""Signing in with an API key or a one-time link, signing out, and the choice between light and dark."""

from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from serve_app.console.rendering import THEMES
from serve_app.console.session import (
    check_origin,
    drop_cookie,
    find_session,
    identify,
    is_on_loopback,
    is_over_tls,
    note_refused_link,
    sessions_of,
    set_cookie,
    sign_in,
    visitor_of,
)
from serve_app.console.visit import THEME_COOKIE, Visit, errors_as_pages, redirect, render_page, safe_place
from serve_app.errors.api import BadRequest, WrongRegion
from serve_app.routes.endpoint import services_of

_REFUSED = "This API key is not accepted. Check that all of it was copied, and that it was not revoked."
_LINK_REFUSED = "This link was used already, or is too old. Sign in with an API key."
_YEAR_S = 365 * 86_400
_MAX_LINK_CHARS = 64


@errors_as_pages
async def show_sign_in(request: Request) -> Response:
    """Show the form, or redirect to the console if there is a session."""
    link = request.query_params.get("link", "")[:_MAX_LINK_CHARS]
    if not link and await _has_session(request):
        return redirect("/console")
    return _form(request, link=link, next=safe_place(request.query_params.get("next", "")))


@errors_as_pages
async def sign_in_with_key(request: Request) -> Response:
    """Exchange an API key for a session."""
    check_origin(request)
    fields = await _fields(request)
    place = safe_place(fields.get("next", ""))
    session = await sign_in(request, fields.get("key", "").strip())
    if session is None:
        return _form(request, 401, message=_REFUSED, next=place)
    response = redirect(place or "/console")
    set_cookie(request, response, session)
    return response


@errors_as_pages
async def sign_in_with_link(request: Request) -> Response:
    """Exchange a one-time link for a session, on this machine only."""
    check_origin(request)
    services = services_of(request)
    sessions = sessions_of(services)
    link = (await _fields(request)).get("link", "")[:_MAX_LINK_CHARS]
    key_digest = await sessions.use_link(link) if is_on_loopback(request) else None
    holder = None if key_digest is None else await identify(services, key_digest)
    if key_digest is None or holder is None:
        await note_refused_link(request)
        return _form(request, 401, message=_LINK_REFUSED)
    response = redirect("/console")
    set_cookie(request, response, await sessions.open(key_digest, visitor_of(request, holder)))
    return response


async def sign_out(visit: Visit) -> Response:
    """End the session, for every replica."""
    await sessions_of(visit.services).close(visit.session.stored, visitor_of(visit.request, visit.principal))
    response = redirect("/console/sign-in")
    drop_cookie(visit.request, response)
    return response


async def choose_theme(visit: Visit) -> Response:
    """Save the choice between light and dark."""
    theme = visit.fields.get("theme", "")
    response = redirect(safe_place(visit.fields.get("place", "")) or "/console")
    if theme in THEMES:
        secure = is_over_tls(visit.request)
        response.set_cookie(
            THEME_COOKIE, theme, _YEAR_S, path="/console", httponly=True, samesite="strict", secure=secure
        )
    return response


async def _has_session(request: Request) -> bool:
    try:
        return await find_session(request) is not None
    except WrongRegion:  # The session is valid in another region; here another key may sign in.
        return False


def _form(request: Request, status: int = 200, *, message: str = "", link: str = "", next: str = "") -> Response:
    return render_page(request, "sign_in.html", status, message=message, link=link, next=next)


async def _fields(request: Request) -> dict[str, str]:
    try:
        return dict(parse_qsl((await request.body()).decode(), max_num_fields=8))
    except ValueError:
        raise BadRequest("The form could not be read.") from None
