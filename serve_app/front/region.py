"""The agent's part for its region: whether the region is drained, and where the other regions are.

The HAProxy processes learn of it over their runtime sockets, without a reload.
"""

import logging
import socket
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from urllib.parse import urlsplit

from deployments.state.regions import ResolvedRegion
from serve_app.front.addresses import Address
from serve_app.front.rendering import NUM_REGION_SLOTS, OVER_TLS, STATE_BACKEND, backend_of
from serve_app.front.runtime import Runtime, RuntimeFailed, plan_places
from serve_app.front.settings import FrontSettings
from serve_app.front.table import RegionState, load_region, save_region
from serve_app.front.timings import FrontTimings

logger = logging.getLogger(__name__)

_PORTS = {"http": 80, OVER_TLS: 443}


class Hysteresis:
    """Decides from one look after another whether a region is drained.

    A region that the operator drains is drained at once. Otherwise a success restarts the time until it is drained, and
    a failure the time until it serves again, so that a region that answers now and then stays as it is.
    """

    def __init__(self, timings: FrontTimings, now: float, *, is_drained: bool) -> None:
        self.is_drained = is_drained
        self._timings = timings
        self._good_at = now
        self._bad_at = now

    def note(self, now: float, *, is_ready: bool, must_drain: bool) -> bool:
        """Note one look; return whether `is_drained` has changed."""
        if is_ready and not must_drain:
            self._good_at = now
        else:
            self._bad_at = now
        before = self.is_drained
        if self.is_drained:
            self.is_drained = now - self._bad_at < self._timings.return_after_s
        else:
            self.is_drained = must_drain or now - self._good_at >= self._timings.leave_after_s
        return self.is_drained != before


class RegionKeeper:
    """Keeps the HAProxy processes of a front up to date about its region and the others."""

    def __init__(self, settings: FrontSettings, region: ResolvedRegion, pool: Executor, now: float) -> None:
        self._settings = settings
        self._timings = settings.timings
        self._region = region
        self._pool = pool
        saved = load_region(settings.region_path, now, settings.timings.fresh_s)
        self._hysteresis = Hysteresis(settings.timings, now, is_drained=saved.is_drained)
        self._addresses = dict(saved.addresses)
        self._resolving: dict[str, Future[tuple[Address, ...]]] = {}
        self._resolved_at: dict[str, float] = {}
        self._saved: tuple[float, RegionState] | None = None

    def keep(self, runtimes: Sequence[Runtime], now: float, *, is_ready: bool, must_drain: bool) -> None:
        """Note whether a replica is ready and whether the operator drains the region, and update every process."""
        if self._hysteresis.note(now, is_ready=is_ready, must_drain=must_drain):
            word = "is drained" if self._hysteresis.is_drained else "serves"
            logger.warning("The region %s %s.", self._region.name, word)
        self._resolve(now)
        for number, runtime in enumerate(runtimes):
            try:
                self._fill(runtime)
            except RuntimeFailed as error:
                logger.warning("HAProxy %d: %s", number, error)
        self._save(now)

    def _fill(self, runtime: Runtime) -> None:
        (flag,) = runtime.slots(STATE_BACKEND)
        commands: list[str] = []
        if flag.is_empty != self._hysteresis.is_drained:
            word = "maint" if self._hysteresis.is_drained else "ready"
            commands.append(f"set server {STATE_BACKEND}/{STATE_BACKEND} state {word}")
        for name in self._region.others:
            if wanted := self._addresses.get(name):
                backend = backend_of(name)
                commands += plan_places(backend, runtime.slots(backend), wanted)
        runtime.send(commands)

    def _resolve(self, now: float) -> None:
        """Look up the addresses of the other regions. An address stays while the system cannot resolve it."""
        for name, url in self._region.others.items():
            asked = self._resolving.get(name)
            if asked is not None and asked.done():
                del self._resolving[name]
                self._resolved_at[name] = now
                if found := asked.result():
                    self._addresses[name] = found
            elif asked is None and now - self._resolved_at.get(name, 0.0) >= self._timings.ask_others_s:
                self._resolving[name] = self._pool.submit(resolve, url)

    def _save(self, now: float) -> None:
        state = RegionState(self._hysteresis.is_drained, dict(self._addresses))
        if self._saved is not None and self._saved[1] == state and now - self._saved[0] < self._timings.save_s:
            return
        try:
            save_region(self._settings.region_path, state, now)
        except OSError as error:
            logger.warning("The state of the region cannot be saved: %s", error.strerror)
        else:
            self._saved = (now, state)


def resolve(url: str) -> tuple[Address, ...]:
    """Return the addresses of another region's fronts; none if the system cannot resolve them now."""
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(sorted({Address(str(place[0]), port) for *_, place in found}))[:NUM_REGION_SLOTS]
