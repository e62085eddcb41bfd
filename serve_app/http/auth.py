"""Who is asking: from an Authorization header to a Principal, or a refusal."""

from starlette.requests import HTTPConnection

from deployments.limits.contract import Gatekeeper, GatekeeperUnavailable
from deployments.state.identity.principal import Principal
from deployments.state.objects.pair import write_near_only
from serve_app.errors.api import InvalidKey, PermissionDenied, Unauthenticated, Unavailable, WrongRegion

_MAX_HEADER_CHARS = 512


async def authenticate(request: HTTPConnection, gatekeeper: Gatekeeper, region: str = "") -> Principal:
    """Return who holds the API key that the request carries; `region` is this one, empty where there is only one.

    What a key that is bound to regions stores from here on stays in this one.

    Raises:
        Unauthenticated: there is no key, or the header does not hold one the Bearer way.
        InvalidKey: the key is unknown, revoked or expired.
        Unavailable: keys cannot be checked right now.
        WrongRegion: the key is bound to other regions.
    """
    secret = bearer_secret(request.headers.get("authorization"))
    try:
        principal = await gatekeeper.identify(secret)
    except GatekeeperUnavailable:
        raise Unavailable("API keys cannot be checked right now. Please retry your request.") from None
    if principal is None:
        raise InvalidKey(secret)
    enter_region(principal, region)
    return principal


def key_digest(request: HTTPConnection, gatekeeper: Gatekeeper) -> bytes:
    """Return the digest of the secret that an authenticated request carries."""
    return gatekeeper.digest(bearer_secret(request.headers.get("authorization")))


def enter_region(principal: Principal, region: str) -> None:
    """Check that a key may be used in a region. What a key that is bound to regions stores from here on stays there.

    Raises:
        WrongRegion: it is bound to others.
    """
    if not principal.may_run_in(region):
        raise WrongRegion
    if principal.regions is not None:
        write_near_only()


def check_admin(principal: Principal) -> None:
    """Check that a key is an admin key.

    Raises:
        PermissionDenied: it is not.
    """
    if not principal.is_admin:
        raise PermissionDenied("This path needs an admin API key. Ask the operator of this service.")


def bearer_secret(header: str | None) -> str:
    """Return the secret of an Authorization header's value.

    Raises:
        Unauthenticated: the header is missing, empty or of another scheme.
        InvalidKey: what it holds can be no key: over-long, or not printable ASCII in one word.
    """
    if header is None or not header.strip():
        raise Unauthenticated
    scheme, _, secret = header.strip().partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        raise Unauthenticated(
            "You didn't provide an API key the expected way. The Authorization header should read "
            "'Bearer YOUR_KEY', with your API key in place of YOUR_KEY."
        )
    if len(secret) > _MAX_HEADER_CHARS or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise InvalidKey(secret)
    return secret
