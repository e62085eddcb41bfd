"""One request to a page: its session and services, and the rendering of pages and errors."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp

from deployments.operations import Operation
from deployments.state.audit_log import Actor
from deployments.state.identity.principal import Principal
from serve_app.console.rendering import THEMES, render
from serve_app.console.session import CSRF_HEADER, Session, check_origin, check_token, find_session, is_over_tls
from serve_app.errors.api import ApiError, BadRequest, PermissionDenied, UnknownUrl
from serve_app.operations.scopes import check_operation
from serve_app.routes.endpoint import PRINCIPAL, services_of, trace_of
from serve_app.services import Services
from serve_app.telemetry.log import api_error_for

Answer = TypeVar("Answer", bound=ASGIApp)

THEME_COOKIE = "manta_theme"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "referrer-policy": "same-origin",  # Without a referrer, browsers send no origin either.
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
}
SIGN_IN = "/console/sign-in"
_FORM_TYPE = "application/x-www-form-urlencoded"
_MAX_FIELDS = 64
_USAGE = "usage"


@dataclass(frozen=True)
class Visit:
    """A request to a page, with its session and the fields of its form."""

    request: Request
    session: Session
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def principal(self) -> Principal:
        """The holder of the session's key."""
        return self.session.principal

    @property
    def account(self) -> str:
        """The account that the page shows."""
        return self.session.principal.account

    @property
    def actor(self) -> Actor:
        """The author of a change, for the audit log."""
        return Actor("session", self.session.principal.key_id)

    @cached_property
    def services(self) -> Services:
        """The same services that the API's routes use."""
        return services_of(self.request)

    @property
    def api_url(self) -> str:
        """The address of the API as this browser reaches the service, for clients' base URL."""
        scheme = "https" if is_over_tls(self.request) else "http"
        return f"{scheme}://{self.request.url.netloc}/v1"

    @property
    def is_fragment(self) -> bool:
        """Whether an open page asks for a part of itself."""
        return self.request.headers.get("hx-request") == "true"

    @property
    def after(self) -> str | None:
        """The cursor of a page of a list, None for the first."""
        return self.query("after") or None

    def query(self, name: str) -> str:
        """Return a parameter of the query, "" if it is missing."""
        return self.request.query_params.get(name, "")

    async def call(self, endpoint: Callable[[Request], Awaitable[Answer]]) -> Answer:
        """Return the answer of an API route to the session's principal, without counting it as a request.

        Raises:
            ApiError: as the route does.
        """
        try:
            return await self.call_counted(endpoint)
        finally:
            trace_of(self.request).principal = None

    async def call_counted(self, endpoint: Callable[[Request], Awaitable[Answer]]) -> Answer:
        """Return the answer of an API route like `call`, and count it as a request of the key in log and usage."""
        self.request.scope[PRINCIPAL] = self.principal
        return await endpoint(self.request)

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a template as a page of this session."""
        values = {"visit": self, "after": self.after, "done": self.query("done"), **values}
        return render_page(self.request, template, status, session=self.session, **values)

    def may(self, operation: str) -> bool:
        """Return whether the key's scopes allow an operation."""
        operations = self.principal.operations
        return operations is None or operation in operations


def page(
    show: Callable[[Visit], Awaitable[ASGIApp]],
    *,
    operation: Operation | None = None,
    reads_usage: bool = False,
    is_for_operators: bool = False,
    is_for_scripts: bool = False,
) -> Callable[[Request], Awaitable[ASGIApp]]:
    """Return the endpoint of a page, which checks the session and the form, and shows errors as pages.

    `operation` is a scope that the page needs. `reads_usage` pages need the scope for usage. `is_for_scripts` pages
    answer errors like the API.
    """

    @wraps(show)
    async def endpoint(request: Request) -> ASGIApp:
        session: Session | None = None
        try:
            session = await find_session(request)
            if session is None:
                return _to_sign_in(request, is_for_scripts=is_for_scripts or _wants_json(request))
            services_of(request).count_call(session.principal)
            if is_for_operators and not session.principal.is_admin:
                raise PermissionDenied("This page is for operators. Sign in with an admin API key.")
            if reads_usage and not may_read_usage(session.principal):
                raise PermissionDenied("This API key does not have permission to read usage.")
            if operation is not None:
                check_operation(session.principal, operation)
            fields = {} if request.method in ("GET", "HEAD") else await _checked_form(request, session)
            return await show(Visit(request, session, fields))
        except ClientDisconnect:
            raise
        except Exception as error:
            if is_for_scripts or _wants_json(request):
                raise
            return error_page(request, error, session)

    return endpoint


async def no_such_page(visit: Visit) -> Response:
    """Refuse a path that no other page has.

    Raises:
        UnknownUrl: always.
    """
    raise UnknownUrl(visit.request.method, visit.request.url.path)


def errors_as_pages(show: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint without a session that shows its errors as pages."""

    @wraps(show)
    async def endpoint(request: Request) -> Response:
        try:
            return await show(request)
        except ClientDisconnect:
            raise
        except Exception as error:
            return error_page(request, error)

    return endpoint


def may_read_usage(principal: Principal) -> bool:
    """Return whether a key's scopes allow reading the usage and the request log of its account."""
    return principal.operations is None or _USAGE in principal.operations


async def _checked_form(request: Request, session: Session) -> dict[str, str]:
    """Check that a page of this session sent the form; return its fields, empty for a form with a file or for JSON."""
    check_origin(request)
    # A form with a file is read piece by piece, after this check, so its token is in a header.
    given = request.headers.get(CSRF_HEADER)
    fields: dict[str, str] = {}
    if request.headers.get("content-type", "").partition(";")[0] == _FORM_TYPE:
        try:
            pairs = parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
        except ValueError:
            raise BadRequest("The form could not be read.") from None
        fields = _joined(pairs)
        given = given or fields.pop("csrf", None)
    check_token(session, given)
    return fields


def _joined(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return the fields of a form; the values of a repeated field are joined by line ends."""
    fields: dict[str, str] = {}
    for name, value in pairs:
        fields[name] = f"{fields[name]}\n{value}" if name in fields else value
    return fields


def _to_sign_in(request: Request, *, is_for_scripts: bool) -> Response:
    place = request.url.path if request.method == "GET" else ""
    address = f"{SIGN_IN}?next={quote(place)}" if place not in ("", "/console") else SIGN_IN
    if is_for_scripts or request.headers.get("hx-request") == "true":
        return Response(status_code=401, headers={"hx-redirect": SIGN_IN, **HEADERS})
    return RedirectResponse(address, 303, headers=HEADERS)


def redirect(place: str) -> Response:
    """Return a redirect to a page after a form."""
    return RedirectResponse(place, 303, headers=HEADERS)


def error_page(request: Request, error: Exception, session: Session | None = None) -> Response:
    """Return the page for an error, with the navigation if there is a session."""
    trace = trace_of(request)
    refusal: ApiError = api_error_for(error, trace.request_id)
    trace.fail(refusal)
    shown: dict[str, Any] = {"refusal": refusal, "request_id": trace.request_id}
    if session is None:
        response = render_page(request, "error.html", refusal.status, **shown)
    else:
        visit = Visit(request, session)
        response = visit.page("error_in_frame.html", refusal.status, back=_page_before(request), **shown)
    response.headers.update(refusal.headers)
    return response


def _page_before(request: Request) -> str:
    """Return the path of the page from which the browser came here, that of the overview if it was none of these."""
    try:
        place = safe_place(urlsplit(request.headers.get("referer", "")).path)
    except ValueError:
        place = ""
    return place if place not in ("", SIGN_IN, request.url.path) else "/console"


def safe_place(place: str) -> str:
    """Return a path of the console, "" for any other place."""
    is_safe = place.startswith("/console/") and place.isascii() and place.isprintable() and len(place) <= 256
    return place if is_safe and not {"\\", "?", "#"} & set(place) else ""


def _wants_json(request: Request) -> bool:
    """Return whether a script of a page asks, such as that of uploads."""
    return request.headers.get("accept") == "application/json"


def render_page(
    request: Request, template: str, status_code: int = 200, *, session: Session | None = None, **values: Any
) -> Response:
    """Return a template as a page, with or without a session."""
    theme = request.cookies.get(THEME_COOKIE, "")
    html = render(
        template,
        **values,
        path=request.url.path,
        principal=None if session is None else session.principal,
        csrf="" if session is None else session.csrf,
        may_read_usage=session is not None and may_read_usage(session.principal),
        theme=theme if theme in THEMES else "",
    )
    return Response(html, status_code, HEADERS, "text/html")
