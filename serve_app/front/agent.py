"""The front's agent: finds the ingress replicas, and keeps the tables of the HAProxy processes.

The supervisor starts it (`python -m serve_app.front.agent SETTINGS`) and restarts it when it ends. Meanwhile HAProxy
goes on with the table that it has, and with its own health checks.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from serve_app.front.addresses import Address, is_own, listening_on
from serve_app.front.asking import Handshake, NoAnswer, NotOurs, ask, ask_dashboard, ask_replica
from serve_app.front.certificate import CertificateKeeper
from serve_app.front.region import RegionKeeper
from serve_app.front.rendering import LAST_RESORT, MAIN
from serve_app.front.runtime import Runtime, RuntimeFailed, Slot, end_streams, plan, silent, weigh, without_returning
from serve_app.front.settings import NUM_PROXIES, FrontSettings, load_settings
from serve_app.front.table import Table, load_table, save_table

logger = logging.getLogger(__name__)

_AT_ONCE = 16
_OVER_TLS = "https://"


class Agent:
    """The state of one front, which each round brings up to date."""

    def __init__(self, settings: FrontSettings) -> None:
        self._settings = settings
        self._timings = settings.timings
        self._clock_offset = time.time() - time.monotonic()
        self._runtimes = [
            Runtime(settings.socket_path(number), settings.timings.runtime_s) for number in range(NUM_PROXIES)
        ]
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ask")
        self._asked: dict[Address, Future[Handshake | NotOurs | NoAnswer]] = {}
        self._ask_at: dict[Address, float] = {}
        self._lists: Future[set[Address]] | None = None
        self._silent_at: dict[Address, float] = {}
        self._named_at: dict[Address, float] = {}
        self._lists_at = self._saved_at = 0.0
        self._is_changed = True
        self._num_failed = [0] * NUM_PROXIES
        self._certificate = CertificateKeeper(settings)
        self._handshakes: dict[Address, Handshake] = {}
        self._region = (
            RegionKeeper(settings, settings.region, self._pool, self._now()) if settings.region is not None else None
        )
        self.table = self._first_table()

    def round(self) -> None:
        """Look at everything once, and update the HAProxy processes."""
        now = self._now()
        own = listening_on(self._settings.min_port, self._settings.max_port)
        self._ask_due(own, now)
        questions: list[Future[Any]] = [*self._asked.values()]
        wait(questions if self._lists is None else [*questions, self._lists], self._timings.hear_s)
        self._hear(own, now)
        views = [self._look(number) for number in range(NUM_PROXIES)]
        self._note_silent(views, now)
        living = {slot.address for slots, _ in filter(None, views) for slot in slots if slot.is_up}
        down = {slot.address for slots, _ in filter(None, views) for slot in slots if slot.is_down} - living
        self._is_changed |= self.table.note_checks(living, down, now)
        for address in self.table.forget(now, self._timings.forget_s):
            logger.warning("%s is removed: no proof or passing check for %g s.", address, self._timings.forget_s)
            self._is_changed = True
        self._fill(views)
        self._save(now)
        self._certificate.keep(self._runtimes)
        self._handshakes = {one: last for one, last in self._handshakes.items() if one in self.table.addresses()}
        if self._region is not None:
            is_ready = any(last.is_ready for address, last in self._handshakes.items() if address in living)
            must_drain = any(last.is_drained for last in self._handshakes.values())
            self._region.keep(self._runtimes, now, is_ready=is_ready, must_drain=must_drain)

    def _now(self) -> float:
        """Return Unix seconds, unaffected by changes of the system clock."""
        return time.monotonic() + self._clock_offset

    def _first_table(self) -> Table:
        """Return HAProxy's servers and a recently saved table. The servers of an older table are only asked."""
        now = self._now()
        saved, saved_at = load_table(self._settings.table_path)
        table = saved if now - saved_at <= self._timings.fresh_s else Table()
        self._named_at = dict.fromkeys(saved.addresses(), now)
        table.note_seen(table.addresses(), now)
        for number in range(NUM_PROXIES):
            for slot in (self._look(number) or ((), ()))[0]:
                if not slot.is_empty:
                    table.add(slot.address, now, is_own=is_own(slot.address.host))
        return table

    def _look(self, number: int) -> tuple[list[Slot], list[Slot]] | None:
        """Return the slots of both backends of a process; None if it does not answer."""
        try:
            slots = self._runtimes[number].slots(MAIN), self._runtimes[number].slots(LAST_RESORT)
        except RuntimeFailed as error:
            self._num_failed[number] += 1
            if self._num_failed[number] in (4, 40) or self._num_failed[number] % 400 == 0:
                logger.warning("HAProxy %d: %s", number, error)
            return None
        self._num_failed[number] = 0
        return slots

    def _ask_due(self, own: set[Address], now: float) -> None:
        """Ask new addresses, those that are due again, and from time to time for the lists."""
        if self._lists is None and now - self._lists_at >= self._timings.lists_s:
            self._lists_at = now
            self._lists = self._pool.submit(self._ask_lists)
        self._named_at = {one: at for one, at in self._named_at.items() if now - at < self._timings.fresh_s}
        candidates = own | self.table.addresses() | {one for one in self._named_at if not self._is_seen(one)}
        self._ask_at = {address: at for address, at in self._ask_at.items() if address in candidates}
        for address in sorted(candidates - self._asked.keys()):
            if self._ask_at.get(address, 0.0) <= now:
                self._asked[address] = self._pool.submit(self._ask, address)

    def _hear(self, own: set[Address], now: float) -> None:
        """Handle the answers that have come."""
        if self._lists is not None and self._lists.done():
            self._note_named(self._lists.result(), now)
            self._lists = None
        for address in [address for address, asked in self._asked.items() if asked.done()]:
            self._take(address, self._asked.pop(address).result(), own, now)

    def _take(self, address: Address, answer: Handshake | NotOurs | NoAnswer, own: set[Address], now: float) -> None:
        known = address in self.table.addresses()
        if isinstance(answer, NotOurs):
            self._ask_at[address] = now + self._timings.ask_others_s
            if self.table.drop(address):
                logger.warning("%s is dropped: another program answers there.", address)
                self._is_changed = True
        elif isinstance(answer, NoAnswer):
            self._ask_at[address] = now + (
                self._timings.ask_s if known or address in own else self._timings.ask_others_s
            )
            if address in self._silent_at:
                self._silent_at[address] = now
        else:
            self._ask_at[address] = now + self._timings.ask_s
            self._handshakes[address] = answer
            self._note_named(answer.others, now)
            if self.table.add(address, now, is_own=is_own(address.host)):
                logger.info("%s is an ingress replica.", address)
                self._is_changed = True

    def _note_silent(self, views: list[tuple[list[Slot], list[Slot]] | None], now: float) -> None:
        """Note the replicas whose nodes do not answer."""
        self._silent_at = {one: at for one, at in self._silent_at.items() if now - at < self._timings.spare_s}
        for slots, _ in filter(None, views):
            for slot in silent(slots, self._timings.silent_s):
                if slot.address not in self._silent_at:
                    logger.warning("%s and its node do not answer: its streams end.", slot.address)
                self._silent_at[slot.address] = now

    def _is_seen(self, address: Address) -> bool:
        """Return whether an address is on this node, and would be found if a process listened there."""
        return self._settings.min_port <= address.port <= self._settings.max_port and is_own(address.host)

    def _ask(self, address: Address) -> Handshake | NotOurs | NoAnswer:
        region = self._settings.region.name if self._settings.region else ""
        try:
            over_tls = self._settings.ingress_tls is not None
            return ask_replica(address, self._settings.trust, self._timings.answer_s, region, over_tls=over_tls)
        except (NotOurs, NoAnswer) as error:
            return error
        except (ValueError, KeyError, TypeError):
            return NotOurs(f"{address} answers with a proof that cannot be read.")

    def _ask_lists(self) -> set[Address]:
        """Return the replicas that Serve's controller and other fronts list; none while they are away."""
        named: set[Address] = set()
        if self._settings.dashboard:
            named |= ask_dashboard(self._settings.dashboard, self._timings.answer_s)
        for seed in self._settings.seeds:
            named |= self._ask_seed(seed)
        return named

    def _ask_seed(self, seed: str) -> frozenset[Address]:
        host, _, port = seed.removeprefix(_OVER_TLS).rpartition(":")
        try:
            address = Address(host.strip("[]"), int(port))
            return ask(
                address, self._settings.trust, self._timings.answer_s, over_tls=seed.startswith(_OVER_TLS)
            ).others
        except (NotOurs, NoAnswer, ValueError, KeyError, TypeError):
            return frozenset()

    def _note_named(self, named: Iterable[Address], now: float) -> None:
        """Note the addresses on a list: they are asked for a while, and stay in the table meanwhile."""
        for address in named:
            self._named_at[address] = now
        self.table.note_seen(named, now)

    def _fill(self, views: list[tuple[list[Slot], list[Slot]] | None]) -> None:
        known, spare_s = self.table.servers(), self._timings.spare_s
        servers = without_returning(known, self._silent_at, self._now(), spare_s)[: self._settings.num_slots]
        open_requests: dict[Address, int] = {}
        for slots, _ in filter(None, views):
            for slot in slots:
                open_requests[slot.address] = open_requests.get(slot.address, 0) + slot.num_sessions
        weights = weigh(servers, open_requests)
        down = {server.address for server in servers if not server.is_up}
        for number, view in enumerate(views):
            if view is None:
                continue
            try:
                gone = [slot for slot in view[0] if slot.is_unreachable and slot.address in self._silent_at]
                self._runtimes[number].send(end_streams(gone) + plan(*view, weights, down))
            except RuntimeFailed as error:
                logger.warning("HAProxy %d: %s", number, error)

    def _save(self, now: float) -> None:
        if not self._is_changed and now - self._saved_at < self._timings.save_s:
            return
        try:
            save_table(self._settings.table_path, self.table, now)
        except OSError as error:
            logger.warning("The table cannot be saved: %s", error.strerror)
        else:
            self._is_changed, self._saved_at = False, now


def main(path: Path, parent: int) -> None:
    """Run rounds until the supervisor ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the supervisor, which ends this process.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s front agent: %(message)s", stream=sys.stderr)
    settings = load_settings(path)
    agent = Agent(settings)
    while os.getppid() == parent:
        started = time.monotonic()
        agent.round()
        time.sleep(max(settings.timings.poll_s, settings.timings.round_s - (time.monotonic() - started)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
