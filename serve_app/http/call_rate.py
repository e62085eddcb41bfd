"""A bound on how often a key may call this service, for all that the gatekeeper does not count: all but model requests.

Each ingress replica counts the calls that reach it, in its memory: a call that costs no tokens must not wait for one
process of the cluster.
"""

import time
from collections.abc import Callable

from deployments.limits.contract import Denied
from deployments.limits.window import WINDOW_S, Window
from deployments.state.identity.principal import Principal
from serve_app.errors.api import RateLimited


class CallRate:
    """The calls of the last minute, by key."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, Window] = {}
        self._swept_at = clock()

    def count(self, principal: Principal, calls_per_minute: int | None) -> None:
        """Count one call of a key, which may make `calls_per_minute` in any 60 seconds; None is any number.

        Raises:
            RateLimited: the key has made as many.
        """
        if calls_per_minute is None:
            return
        now = self._clock()
        if now - self._swept_at >= WINDOW_S:
            self._forget(now)
        window = self._windows.get(principal.key_id)
        if window is None:
            window = self._windows[principal.key_id] = Window()
        wait_s = window.wait_s(1, calls_per_minute, now)
        if wait_s:
            raise RateLimited(Denied("calls", calls_per_minute, window.used, 1, wait_s), principal.organization)
        window.charge(now, 1)

    def _forget(self, now: float) -> None:
        """Drop the keys without a call in the last minute."""
        self._swept_at = now
        for key_id, window in list(self._windows.items()):
            window.expire(now)
            if window.is_empty:
                del self._windows[key_id]
