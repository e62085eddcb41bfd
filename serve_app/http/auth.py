"""Who is asking: from the API key in a request's headers to a Principal, or a refusal.

`CallRate` bounds how often a key may call, `KeyWatch` ends answers whose key is revoked meanwhile.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from starlette.requests import HTTPConnection

from deployments.limits.contract import Denied, Gatekeeper, GatekeeperUnavailable
from deployments.limits.window import WINDOW_S, Window
from deployments.patience import USUAL, Patience
from deployments.state.identity.principal import Principal
from deployments.state.objects.pair import write_near_only
from serve_app.errors.api import InvalidKey, PermissionDenied, Unauthenticated, WrongRegion
from serve_app.errors.capacity import RateLimited, Unavailable

_MAX_HEADER_CHARS = 512


async def authenticate(request: HTTPConnection, gatekeeper: Gatekeeper, region: str = "") -> Principal:
    """Return the holder of the request's API key; `region` is this one, empty where there is only one.

    Raises:
        Unauthenticated: there is no key, or it is sent neither as a Bearer token nor as `x-api-key`.
        InvalidKey: the key is unknown, revoked or expired.
        Unavailable: keys cannot be checked right now.
        WrongRegion: the key is bound to other regions.
    """
    secret = _secret_of(request)
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
    return gatekeeper.digest(_secret_of(request))


def _secret_of(request: HTTPConnection) -> str:
    """Return the secret in a request's headers; Anthropic's clients send `x-api-key`. Raises as `bearer_secret`."""
    header, alone = request.headers.get("authorization"), request.headers.get("x-api-key")
    return bearer_secret(f"Bearer {alone}" if alone and not header else header)


def enter_region(principal: Principal, region: str) -> None:
    """Raise WrongRegion unless the key may be used here. What a key bound to regions stores then stays here."""
    if not principal.may_run_in(region):
        raise WrongRegion
    if principal.regions is not None:
        write_near_only()


def check_admin(principal: Principal) -> None:
    """Raise PermissionDenied unless the key is an admin key."""
    if not principal.is_admin:
        raise PermissionDenied("This path needs an admin API key. Ask the operator of this service.")


def bearer_secret(header: str | None) -> str:
    """Return the secret of an Authorization header's value.

    Raises:
        Unauthenticated: the header is missing, empty or of another scheme.
        InvalidKey: the secret cannot be a key: too long, or not one word of printable ASCII.
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


class CallRate:
    """Bounds how often a key may call endpoints that the gatekeeper does not count: all but model requests.

    Counts in the memory of each ingress replica: a call that costs no tokens must not wait for another process.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, Window] = {}
        self._swept_at = clock()

    def count(self, principal: Principal, calls_per_minute: int | None) -> None:
        """Count one call of a key, which may make `calls_per_minute` in any 60 seconds; None is unlimited.

        Raises:
            RateLimited: the key has reached the limit.
        """
        if calls_per_minute is None:
            return
        now = self._clock()
        if now - self._swept_at >= WINDOW_S:
            self._drop_idle_keys(now)
        window = self._windows.get(principal.key_id)
        if window is None:
            window = self._windows[principal.key_id] = Window()
        wait_s = window.wait_s(1, calls_per_minute, now)
        if wait_s:
            raise RateLimited(Denied("calls", calls_per_minute, window.used, 1, wait_s), principal.organization)
        window.charge(now, 1)

    def _drop_idle_keys(self, now: float) -> None:
        self._swept_at = now
        for key_id, window in list(self._windows.items()):
            window.expire(now)
            if window.is_empty:
                del self._windows[key_id]


class KeyWatch:
    """Ends answers whose key is no longer accepted: a stream may run for an hour, and its key be revoked meanwhile."""

    def __init__(self, gatekeeper: Gatekeeper, patience: Patience = USUAL) -> None:
        self._gatekeeper = gatekeeper
        self._patience = patience
        self._watched: defaultdict[bytes, set[Callable[[], object]]] = defaultdict(set)
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, digest: bytes | None, end: Callable[[], object]) -> Iterator[None]:
        """Call `end` if the secret with this digest is revoked or expires inside the context.

        Without a digest nothing is watched: a console page has a session in place of a key.
        """
        if digest is None:
            yield
            return
        self._watched[digest].add(end)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self._watched[digest].discard(end)
            if not self._watched[digest]:
                del self._watched[digest]

    async def _look(self) -> None:
        while self._watched:
            await asyncio.sleep(self._patience.key_look_s)
            for digest in list(self._watched):
                with suppress(GatekeeperUnavailable):
                    if await self._gatekeeper.identify_digest(digest) is None:
                        for end in self._watched.get(digest, ()):
                            end()
