"""Sessions: the cookie, the tokens against forged forms, and the limits on signing in.

A session has no rights of its own. Every request asks the gatekeeper for the key's principal again. So a revoked,
rotated or expired key ends its sessions, and changed scopes apply at once.
"""

import hmac
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from deployments.limits.contract import GatekeeperUnavailable
from deployments.state.console_sessions import FORGOTTEN_S, ConsoleSessions, StoredSession, Visitor
from deployments.state.identity.principal import Principal
from serve_app.errors.api import NotFound, PermissionDenied
from serve_app.errors.capacity import SignInLimited, Unavailable
from serve_app.http.auth import enter_region
from serve_app.http.middleware import REQUEST_ID
from serve_app.routes.endpoint import services_of
from serve_app.services import Services

COOKIE = "manta_session"
CSRF_HEADER = "x-csrf-token"
MAX_FAILURES = 10
"""From one address, during five minutes."""
MAX_ALL_FAILURES = 1_000
"""From all addresses, during five minutes."""
_PATH = "/console"
_MAX_TOKEN_CHARS = 64


@dataclass(frozen=True, slots=True)
class Session:
    """The session of a request."""

    stored: StoredSession
    principal: Principal

    @property
    def csrf(self) -> str:
        """The token in every form of this session."""
        return hmac.new(self.stored.token.encode(), b"console form", "sha256").hexdigest()


def sessions_of(services: Services) -> ConsoleSessions:
    """Return the store of sessions.

    Raises:
        NotFound: the service has no console.
    """
    if services.console is None:
        raise NotFound("This service has no console.")
    return services.console


async def find_session(request: Request) -> Session | None:
    """Return the session of a request, None if there is none or its key is no longer accepted.

    Raises:
        Unavailable: keys cannot be checked right now.
    """
    token = request.cookies.get(COOKIE, "")
    if not token or len(token) > _MAX_TOKEN_CHARS:
        return None
    services = services_of(request)
    sessions = sessions_of(services)
    stored = await sessions.find(token)
    if stored is None:
        return None
    principal = await identify(services, stored.key_digest)
    if principal is None:
        await sessions.close(stored)
        return None
    return Session(stored, principal)


async def identify(services: Services, key_digest: bytes) -> Principal | None:
    """Return the holder of the key with this digest, None if the key is not accepted.

    Raises:
        Unavailable: keys cannot be checked right now.
        WrongRegion: the key is bound to other regions.
    """
    try:
        principal = await services.gatekeeper.identify_digest(key_digest)
    except GatekeeperUnavailable:
        raise Unavailable("API keys cannot be checked right now. Please try again.") from None
    if principal is not None:
        enter_region(principal, services.region)
    return principal


async def sign_in(request: Request, secret: str) -> StoredSession | None:
    """Return a new session for an API key, None if the key is not accepted.

    Raises:
        SignInLimited: too many sign-ins have failed, from this address or in total.
        Unavailable: keys cannot be checked right now.
        WrongRegion: the key is bound to other regions.
    """
    services, address = services_of(request), client_address(request)
    sessions = sessions_of(services)
    if not await _may_fail(sessions, address):
        raise SignInLimited(FORGOTTEN_S)
    try:
        known = await services.gatekeeper.identify(secret)
    except GatekeeperUnavailable:
        await sessions.note_failure(address, -1)
        raise Unavailable("API keys cannot be checked right now. Please try again.") from None
    if known is None:
        await sessions.note_refusal(address, "invalid_api_key")
        return None
    await sessions.note_failure(address, -1)
    enter_region(known, services.region)
    return await sessions.open(services.gatekeeper.digest(secret), visitor_of(request, known))


def visitor_of(request: Request, principal: Principal) -> Visitor:
    """Return the holder of a key as the person who signs in or out."""
    return Visitor(principal.key_id, principal.account, client_address(request))


async def note_refused_link(request: Request) -> None:
    """Record that a one-time link was refused; the audit log takes no more of them than failed sign-ins."""
    sessions, address = sessions_of(services_of(request)), client_address(request)
    if await _may_fail(sessions, address):
        await sessions.note_refusal(address, "invalid_link")


async def _may_fail(sessions: ConsoleSessions, address: str) -> bool:
    """Count a sign-in as failed before it is tried, so that many at once cannot pass the limit; return whether it may
    be tried. A sign-in that may not is not counted: otherwise one try per minute would lock everybody out for good.
    """
    from_here, altogether = await sessions.note_failure(address)
    may_fail = from_here <= MAX_FAILURES and altogether <= MAX_ALL_FAILURES
    if not may_fail:
        await sessions.note_failure(address, -1)
    return may_fail


def set_cookie(request: Request, response: Response, session: StoredSession) -> None:
    """Set the cookie of a session. It ends with the browser, or when the service deletes the session."""
    response.set_cookie(
        COOKIE, session.token, path=_PATH, httponly=True, samesite="strict", secure=is_over_tls(request)
    )


def drop_cookie(request: Request, response: Response) -> None:
    """Delete the cookie."""
    response.delete_cookie(COOKIE, path=_PATH, httponly=True, samesite="strict", secure=is_over_tls(request))


def is_over_tls(request: Request) -> bool:
    """Return whether the client's connection is encrypted, according to the front or a proxy before it."""
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").lower() == "https"


def client_address(request: Request) -> str:
    """Return the client's address, from a front of this service or else from the connection."""
    given = request.headers.get("x-forwarded-for", "") if REQUEST_ID in request.scope else ""
    return given.rpartition(",")[2].strip() or (request.client.host if request.client else "")


def is_on_loopback(request: Request) -> bool:
    """Return whether the client is on this machine, and uses a local name in the Host header."""
    try:
        if not ip_address(client_address(request)).is_loopback:
            return False
        name = urlsplit("//" + request.headers.get("host", "")).hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def check_origin(request: Request) -> None:
    """Check that a page of this service sent a form.

    Raises:
        PermissionDenied: the browser sent another origin, or none.
    """
    site = request.headers.get("sec-fetch-site")
    if site is None:
        try:
            host = urlsplit(request.headers.get("origin", "")).netloc
        except ValueError:
            host = ""
        is_same = bool(host) and host == request.headers.get("host")
    else:
        is_same = site == "same-origin"
    if not is_same:
        raise PermissionDenied("This form was sent from another site. Open the page again and repeat it.")


def check_token(session: Session, given: str | None) -> None:
    """Check the token of a form.

    Raises:
        PermissionDenied: it is not the session's token.
    """
    if not hmac.compare_digest((given or "").encode("utf-8", "surrogatepass"), session.csrf.encode()):
        raise PermissionDenied("This form belongs to a session that has ended. Open the page again and repeat it.")
