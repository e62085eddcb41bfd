"""The load of a round: clients that stream and clients that wait for whole answers. None of them repeats anything.

Each request has a connection of its own, so that a door which is closed is noticed at once. A client whose node is down
moves to the next one, as behind a load balancer in front of the nodes.
"""

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx2

from tests.tools.drills.exchange import Exchange, Kind

NUM_STREAMS, NUM_WHOLE = 12, 8
PAUSE_S = 0.25
HANG_S = 60.0
"""A request that has not ended so long after the round's last is taken for one that never will."""
CONNECT_S = 5.0
_PRIORITY = -10
"""Clients have machines of their own: what the nodes compute on this one must not keep them from reading answers."""


@dataclass(frozen=True)
class Ask:
    """A request that clients make: the prompt's name, the body, and how its answer comes."""

    prompt: str
    kind: Kind
    body: dict[str, Any]


@dataclass(frozen=True)
class Door:
    """An address of the service, and the node that it leads to."""

    node: str
    url: str


class Load:
    """Clients at work; `history` is what they have seen so far."""

    def __init__(self, doors: Sequence[Door], key: str, next_ask: Callable[[Kind, int], Ask]) -> None:
        """Take the doors, a key, and what gives the next request of the client with that number."""
        self.history: list[Exchange] = []
        self._doors = list(doors)
        self._down: set[str] = set()
        self._next_ask = next_ask
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PRIORITY)
        self._began = time.monotonic()
        self._is_on = True
        self._under_way: dict[asyncio.Task[None], str] = {}
        timeout = httpx2.Timeout(None, connect=CONNECT_S)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        self._http = httpx2.AsyncClient(headers=headers, timeout=timeout, limits=limits, trust_env=False)
        self._clients = [
            *(asyncio.create_task(self._work("stream", number)) for number in range(NUM_STREAMS)),
            *(asyncio.create_task(self._work("whole", number)) for number in range(NUM_WHOLE)),
        ]

    @property
    def now(self) -> float:
        """Seconds since the round began."""
        return time.monotonic() - self._began

    def leave(self, node: str) -> None:
        """Give up what goes through a node, and have new requests go to others, as a load balancer's check does."""
        self._down.add(node)
        for client, door in self._under_way.items():
            if door == node:
                client.cancel()

    def open(self, door: Door) -> None:
        """Have new requests go through another door, too."""
        self._doors.append(door)

    async def retire(self, node: str) -> None:
        """Send no new request through a node; return when none that was sent is still under way there."""
        self._down.add(node)
        while True:
            if node not in self._under_way.values():
                return
            await asyncio.sleep(0.1)

    async def finish(self) -> list[Exchange]:
        """Send nothing more; return the history once every request has ended, or is given up."""
        self._is_on = False
        _, hung = await asyncio.wait(self._clients, timeout=HANG_S)
        for client in hung:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        await self._http.aclose()
        for client in self._clients:
            with suppress(asyncio.CancelledError):
                client.result()  # An error of the client's own must not look like a service that is well.
        return self.history

    async def _work(self, kind: Kind, number: int) -> None:
        while self._is_on:
            open_doors = [door for door in self._doors if door.node not in self._down] or self._doors
            door = open_doors[number % len(open_doors)]
            ask = self._next_ask(kind, number)
            exchange = Exchange(len(self.history), kind, ask.prompt, door.node, self.now)
            self.history.append(exchange)
            await self._run(exchange, ask, door)
            await asyncio.sleep(PAUSE_S)

    async def _run(self, exchange: Exchange, ask: Ask, door: Door) -> None:
        client = asyncio.current_task()
        assert client is not None
        self._under_way[client] = door.node
        try:
            await self._exchange(exchange, ask, door)
        except httpx2.TransportError as error:
            exchange.lost = f"{type(error).__name__}: {error}"[:120]
        except asyncio.CancelledError:
            if door.node not in self._down or not self._is_on:
                raise
            client.uncancel()
            exchange.lost = "given up: the node is away"
        finally:
            del self._under_way[client]
        exchange.ended = self.now

    async def _exchange(self, exchange: Exchange, ask: Ask, door: Door) -> None:
        last = exchange.started
        body = b""
        events = SplitEvents()
        try:
            async with self._open(ask, door, exchange) as answer:
                read_head(exchange, answer)
                async for piece in answer.aiter_raw():
                    now = self.now
                    exchange.first_byte = exchange.first_byte or now
                    exchange.longest_wait_s = max(exchange.longest_wait_s, now - last)
                    last = now
                    if ask.kind == "stream" and exchange.status == 200:
                        for event in events.add(piece):
                            exchange.add_event(event)
                    else:
                        body += piece
            if body:
                read_body(exchange, body)
        finally:
            exchange.longest_wait_s = max(exchange.longest_wait_s, self.now - last)

    def _open(self, ask: Ask, door: Door, exchange: Exchange) -> Any:
        async def trace(name: str, info: dict[str, Any]) -> None:
            if name == "connection.connect_tcp.complete":
                exchange.port = info["return_value"].get_extra_info("client_addr")[1]

        url = f"{door.url}/v1/chat/completions"
        return self._http.stream("POST", url, content=json.dumps(ask.body), extensions={"trace": trace})


def read_head(exchange: Exchange, answer: httpx2.Response) -> None:
    """Note what the head of an answer says."""
    exchange.status = answer.status_code
    exchange.retry_after = answer.headers.get("retry-after")
    exchange.request_id = answer.headers.get("x-request-id")


def read_body(exchange: Exchange, body: bytes) -> None:
    """Note what a body that came whole says."""
    try:
        told = json.loads(body)
    except ValueError:
        exchange.error = body[:300].decode(errors="replace")
        return
    if exchange.status != 200 and "error" not in told:
        exchange.error = told
    else:
        exchange.add_object(told)


class SplitEvents:
    """The events of a stream, put together from the pieces in which they come."""

    def __init__(self) -> None:
        self._left = b""

    def add(self, piece: bytes) -> list[bytes]:
        """Return the data of each event that is whole now."""
        *events, self._left = (self._left + piece).split(b"\n\n")
        return [event.removeprefix(b"data: ") for event in events if event.startswith(b"data: ")]
