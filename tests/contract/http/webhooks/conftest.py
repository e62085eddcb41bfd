"""A receiver of webhooks on loopback, and what delivers to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deployments.state.database.connection import Database
from deployments.state.encryption.vault import Vault
from deployments.state.webhooks.queue import DeliveryQueue
from deployments.state.webhooks.store import WebhookStore
from deployments.tools.outbound.addresses import AddressRules
from deployments.webhooks import Deliverer, WebhookSender
from tests.contract.http.conftest import serve

LOOPBACK = AddressRules((IPv4Network("127.0.0.0/8"),))


@dataclass
class Receiver:
    """What came, and how it is answered: with `statuses` in turn, then with 200; not at all before `over` if silent."""

    url: str = ""
    got: list[tuple[bytes, dict[str, str]]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    is_silent: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: Request) -> Response:
        self.got.append((await request.body(), dict(request.headers)))
        if self.is_silent:
            await self.over.wait()
        status = self.statuses.pop(0) if self.statuses else 200
        return RedirectResponse("/other", 307) if status == 307 else Response(status_code=status)

    async def note_stray(self, request: Request) -> Response:
        raise AssertionError("A redirect was followed.")

    def ids(self) -> list[str]:
        return [headers["webhook-id"] for _, headers in self.got]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    app = Starlette(
        routes=[
            Route("/hook", made.answer, methods=["POST"]),
            Route("/other", made.note_stray, methods=["GET", "POST"]),
        ]
    )
    async with serve(app) as address:
        made.url = f"{address}/hook"
        yield made
        made.over.set()


@dataclass
class Webhooks:
    """The webhooks of a world over one of its databases."""

    world: Any
    database: Database

    def __post_init__(self) -> None:
        self.vault = Vault(self.database, b"m" * 32)
        self.store = self.world.webhooks = WebhookStore(self.database, self.vault, self.world.clock)
        self.world.webhook_sender = WebhookSender(LOOPBACK)
        self.queue = DeliveryQueue(self.database, self.vault, self.world.clock)

    @asynccontextmanager
    async def delivering(self, queue: Any = None) -> AsyncIterator[None]:
        """Deliver meanwhile."""
        deliverer = Deliverer(queue or self.queue, WebhookSender(LOOPBACK), poll_s=0.01)
        running = asyncio.create_task(deliverer.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def webhooks(world) -> AsyncIterator[Webhooks]:
    """Webhooks in the database of responses."""
    async with _open(Webhooks(world, world.stored.database)) as made:
        yield made


@pytest.fixture
async def batch_webhooks(world, file_store) -> AsyncIterator[Webhooks]:
    """Webhooks in the database of batches."""
    async with _open(Webhooks(world, file_store._database)) as made:
        yield made


@asynccontextmanager
async def _open(made: Webhooks) -> AsyncIterator[Webhooks]:
    sender = made.world.webhook_sender
    yield made
    await sender.aclose()
