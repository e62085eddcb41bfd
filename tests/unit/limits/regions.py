"""Two regions in memory: real clients over real cores, and a link between them that delays, loses and repeats."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from random import Random

from deployments.limits.client.gatekeeper_client import GatekeeperClient
from deployments.limits.contract import Granted
from deployments.limits.core import Keyring
from deployments.limits.messages import Identified, SyncReply, SyncRequest, TransportDown
from deployments.limits.regions.core import RegionCore
from deployments.limits.regions.ledger import RegionLedger
from deployments.limits.regions.messages import INTERVAL_S, parse_reply, parse_request, render
from deployments.limits.window import Share
from deployments.state.identity.principal import Principal
from tests.unit.limits.memory import PEPPER, MemoryJournal, stored

NAMES = ("asia", "us")
TICK_S = 0.05
TIMEOUT_S = 1.0


class Region:
    """One region: its clock, its gatekeeper, and the transport of its clients to that."""

    def __init__(self, world: "Regions", name: str, offset_s: float, speed: float) -> None:
        self.world = world
        self.name = name
        (self.other,) = set(NAMES) - {name}
        self.clock: Callable[[], float] = lambda: world.now * speed + offset_s
        self.journal = MemoryJournal()
        self.core = self._core(self._ledger())
        self.clients: list[GatekeeperClient] = []
        self.is_down = False
        self.under_way: int | None = None
        self.next_at = 0.0
        self.sent_at = 0.0

    def client(self) -> GatekeeperClient:
        async def sleep(seconds: float) -> None:
            self.world.advance(seconds)
            await asyncio.sleep(0)

        share = Share.of_region(self.name, NAMES)
        client = GatekeeperClient(
            self, PEPPER, share=share, clock=self.clock, wall=self.clock, sleep=sleep, background=False
        )
        self.clients.append(client)
        return client

    def kill(self) -> None:
        """Replace the core by one that knows what the journal knows."""
        ledger = self._ledger()
        for change in self.journal.changes:
            ledger.replay(change, self.clock())
        self.core = self._core(ledger)
        self.core.restore_serials(self.journal.serials)
        self.under_way = None

    def lose(self, since: float) -> None:
        """Replace the core by one that knows nothing of what was charged after `since`."""
        self.journal = MemoryJournal()
        self.core = self._core(self._ledger(), since)
        self.under_way = None

    async def identify(self, digest: bytes) -> Identified:
        self._answer()
        return self.core.identify(digest)

    async def sync(self, request: SyncRequest) -> SyncReply:
        await asyncio.sleep(0)
        self._answer()
        return self.core.sync(request)

    async def record(self, client_id: str, first: int, rows: list[tuple[object, ...]]) -> tuple[str, int]:
        raise TransportDown("no records here")

    async def refresh_keys(self) -> None:
        pass

    def _answer(self) -> None:
        if self.is_down:
            raise TransportDown("switched off")

    def _ledger(self) -> RegionLedger:
        return RegionLedger(Share.of_region(self.name, NAMES), frozenset({self.other}), self.journal)

    def _core(self, ledger: RegionLedger, lost_since: float | None = None) -> RegionCore:
        return RegionCore(
            self.name, self.world.keyring, ledger, self.clock, journal=self.journal, lost_since=lost_since
        )


class Regions:
    """Both regions under one true time, `now`, and the link between them: `delay_s` is its way in one direction.

    `late_s` comes to that of replies.
    """

    def __init__(self, *principals: Principal, skew_s: float = 0.0, speed: float = 1.0, seed: int = 0) -> None:
        self.now = 1_000_000.0
        self.delay_s = 0.075
        self.late_s = 0.0
        self.loss = 0.0
        self.is_cut = False
        self.num_loan_waits = 0
        self.random = Random(seed)
        self.keyring = Keyring()
        self.keyring.apply(1, [stored(1, one.key_id, one) for one in principals])
        self.keyring.start_here()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self.regions = {"asia": Region(self, "asia", 0.0, 1.0), "us": Region(self, "us", skew_s, speed)}
        self._poll_at = self.now

    def advance(self, seconds: float) -> None:
        """Let time pass, and happen what happens in it."""
        end = self.now + seconds
        while True:
            at = min(self._poll_at, self._events[0][0] if self._events else float("inf"))
            if at > end:
                break
            self.now = max(self.now, at)
            if at == self._poll_at:
                self._poll_at += TICK_S / 2
                for region in self.regions.values():
                    self._poll(region)
            else:
                heapq.heappop(self._events)[2]()
        self.now = end

    def _at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), do))

    def _poll(self, region: Region) -> None:
        is_due = region.core.is_short(region.other) or self.now - region.sent_at >= 0.5
        if region.under_way is None and self.now >= region.next_at and is_due:
            self._send(region)

    def _send(self, region: Region) -> None:
        core, number = region.core, next(self._numbers)
        region.under_way, region.sent_at = number, self.now
        region.next_at = self.now + INTERVAL_S
        request = core.next_request(region.other)
        rendered = render(request)

        def answer(reply: bytes) -> None:
            if region.under_way == number:
                region.under_way = None
                core.take_reply(region.other, request, parse_reply(reply))

        def deliver() -> None:
            reply = render(self.regions[region.other].core.lend(parse_request(rendered)))
            self._carry(lambda: answer(reply), self.late_s)

        def give_up() -> None:
            if region.under_way == number:
                region.under_way, region.next_at = None, self.now + 0.5
                core.fail(region.other, "no answer")

        self._carry(deliver)
        self._at(self.now + TIMEOUT_S, give_up)

    def _carry(self, deliver: Callable[[], None], late_s: float = 0.0) -> None:
        """Deliver after the link's delay, perhaps never, perhaps again much later."""
        if self.is_cut or self.random.random() < self.loss:
            return
        self.num_loan_waits += 1
        self._at(self.now + self.delay_s + late_s, deliver)
        if self.random.random() < self.loss:
            self._at(self.now + self.delay_s + 4 * self.random.random(), deliver)

    async def tick(self) -> None:
        """Let every client do what it does ten times a second."""
        for region in self.regions.values():
            for client in region.clients:
                await client.tick()


async def admit_for(
    world: Regions, load: list[tuple[GatekeeperClient, Principal, float]], seconds: float
) -> list[list[tuple[float, bool]]]:
    """Let each client ask at its rate; return when each was admitted or refused."""
    begun = world.now
    asked = [0] * len(load)
    decided: list[list[tuple[float, bool]]] = [[] for _ in load]
    while world.now - begun < seconds:
        for index, (client, principal, rate) in enumerate(load):
            while asked[index] < rate * (world.now - begun):
                asked[index] += 1
                decision = await client.admit(principal)
                decided[index].append((world.now, isinstance(decision, Granted)))
        world.advance(TICK_S)
        await world.tick()
    return decided
