"""The agent's part for its region: whether it is left, and where the other regions are.

It goes to the HAProxy processes over their runtime sockets, without a reload.
"""

import logging
import socket
from collections.abc import Collection, Sequence
from concurrent.futures import Executor, Future
from urllib.parse import urlsplit

from serve_app.front.addresses import Address
from serve_app.front.regions import NUM_OTHER_SLOTS, OVER_TLS, STANDING, backend_of
from serve_app.front.runtime import Runtime, RuntimeFailed, Slot
from serve_app.front.settings import FrontSettings, OtherRegion, RegionSettings
from serve_app.front.standing import Hysteresis, Standing, load_standing, save_standing

logger = logging.getLogger(__name__)

_PORTS = {"http": 80, OVER_TLS: 443}


class RegionKeeper:
    """Keeps a front's HAProxy processes at what is known of its region and the others."""

    def __init__(self, settings: FrontSettings, region: RegionSettings, pool: Executor, now: float) -> None:
        self._settings = settings
        self._timings = settings.timings
        self._region = region
        self._pool = pool
        saved = load_standing(settings.standing_path, now, settings.timings.fresh_s)
        self._hysteresis = Hysteresis(settings.timings, now, is_left=saved.is_left)
        self._addresses = dict(saved.addresses)
        self._resolving: dict[str, Future[tuple[Address, ...]]] = {}
        self._resolved_at: dict[str, float] = {}
        self._saved: tuple[float, Standing] | None = None

    def keep(self, runtimes: Sequence[Runtime], now: float, *, is_ready: bool, is_drained: bool) -> None:
        """Take in how the replicas are, and bring every process to what follows from it."""
        if self._hysteresis.note(now, is_ready=is_ready, is_drained=is_drained):
            word = "is left" if self._hysteresis.is_left else "serves"
            logger.warning("The region %s %s.", self._region.name, word)
        self._resolve(now)
        for number, runtime in enumerate(runtimes):
            try:
                self._fill(runtime)
            except RuntimeFailed as error:
                logger.warning("HAProxy %d: %s", number, error)
        self._save(now)

    def _fill(self, runtime: Runtime) -> None:
        (flag,) = runtime.slots(STANDING)
        commands: list[str] = []
        if flag.is_empty != self._hysteresis.is_left:
            commands.append(
                f"set server {STANDING}/{STANDING} state {'maint' if self._hysteresis.is_left else 'ready'}"
            )
        for other in self._region.others:
            if wanted := self._addresses.get(other.name):
                backend = backend_of(other.name)
                commands += plan_places(backend, runtime.slots(backend), wanted)
        runtime.send(commands)

    def _resolve(self, now: float) -> None:
        """Ask the system where the other regions are; what it does not know now stays as it was."""
        for other in self._region.others:
            asked = self._resolving.get(other.name)
            if asked is not None and asked.done():
                del self._resolving[other.name]
                self._resolved_at[other.name] = now
                if found := asked.result():
                    self._addresses[other.name] = found
            elif asked is None and now - self._resolved_at.get(other.name, 0.0) >= self._timings.ask_others_s:
                self._resolving[other.name] = self._pool.submit(resolve, other)

    def _save(self, now: float) -> None:
        standing = Standing(self._hysteresis.is_left, dict(self._addresses))
        if self._saved is not None and self._saved[1] == standing and now - self._saved[0] < self._timings.save_s:
            return
        try:
            save_standing(self._settings.standing_path, standing, now)
        except OSError as error:
            logger.warning("How the region stands cannot be saved: %s", error.strerror)
        else:
            self._saved = (now, standing)


def resolve(other: OtherRegion) -> tuple[Address, ...]:
    """Return where the fronts of another region listen; none if the system does not know it now."""
    parts = urlsplit(other.address)
    port = parts.port or _PORTS[parts.scheme]
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(sorted({Address(str(place[0]), port) for *_, place in found}))[:NUM_OTHER_SLOTS]


def plan_places(backend: str, slots: Sequence[Slot], wanted: Collection[Address]) -> list[str]:
    """Return the commands after which a backend has exactly these servers; one that it has keeps its slot."""
    held = {slot.address for slot in slots if not slot.is_empty and slot.address in wanted}
    free = [slot for slot in slots if slot.is_empty or slot.address not in held]
    commands = [f"set server {backend}/{slot.name} state maint" for slot in free if not slot.is_empty]
    for slot, address in zip(free, sorted(set(wanted) - held), strict=False):
        commands += [
            f"set server {backend}/{slot.name} addr {address.host} port {address.port}",
            f"enable health {backend}/{slot.name}",
            f"set server {backend}/{slot.name} state ready",
            f"set server {backend}/{slot.name} health down",  # Or it would count as living until the first check.
        ]
    return commands
