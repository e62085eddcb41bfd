"""The console over the real stores, in two accounts' eyes."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx2
import pytest

from deployments.limits.snapshots import used_in_minute
from deployments.state.audit_log import AuditLog
from deployments.state.console_sessions import ConsoleSessions
from deployments.state.identity.keys import NewKey
from deployments.state.usage.reading import UsageReader
from deployments.state.usage.request_log import RequestLogReader
from serve_app.console.session import CSRF_HEADER
from tests.contract.http.conftest import principal
from tests.contract.http.webhooks.conftest import receiver, webhooks  # noqa: F401 - fixtures.

SITE = "http://manta.test"
FORM = {"origin": SITE}


@dataclass
class Visitor:
    """A browser without scripts."""

    http: httpx2.AsyncClient
    csrf: str = field(default="", init=False)

    async def sign_in(self, secret: str) -> httpx2.Response:
        answer = await self.http.post("/console/sign-in", data={"key": secret}, headers=FORM)
        if answer.status_code == 303:
            found = re.search(r'name="csrf" value="([0-9a-f]{64})"', await self.read("/console/models"))
            assert found is not None
            self.csrf = found[1]
        return answer

    async def read(self, path: str, status: int = 200, **more: Any) -> str:
        answer = await self.http.get(path, **more)
        assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text[:400]}"
        return answer.text

    async def send(self, path: str, **fields: str) -> httpx2.Response:
        return await self.http.post(path, data={"csrf": self.csrf, **fields}, headers=FORM)

    async def upload(self, path: str, name: str, content: bytes, **fields: str) -> httpx2.Response:
        """Send a form with a file, as the script of the pages does."""
        headers = {**FORM, CSRF_HEADER: self.csrf}
        return await self.http.post(path, data=fields, files={"file": (name, content)}, headers=headers)


@pytest.fixture
async def console(world, key_store, file_store, batch_stores, vector_stores, webhooks) -> ConsoleSessions:  # noqa: F811 - a fixture.
    """The console, with every store behind it; keys and sessions have a database of their own."""
    world.console = ConsoleSessions(key_store._database, world.clock)
    database = key_store._database
    world.usage, world.request_log, world.audit = UsageReader(database), RequestLogReader(database), AuditLog(database)
    world.used_in_minute = partial(used_in_minute, database)
    return world.console


@pytest.fixture
async def secrets(world, key_store, console) -> dict[str, str]:
    """A key of each of two accounts, and an admin key; their limits and scopes are the gatekeeper's too."""
    made = {}
    for account, more in (("acct_one", {}), ("acct_two", {}), ("ops", {"is_admin": True})):
        key, secret = await key_store.create(NewKey(account=account, name=f"key of {account}", tier="standard", **more))
        world.gatekeeper.principals[secret] = principal(
            account=account, organization=account, key_id=key.key_id, retention="stored", tiers=world.tiers, **more
        )
        made[account] = secret
    return made


@pytest.fixture
async def visit(world, console) -> AsyncIterator[Any]:
    """Opens browsers before one application."""
    transport, opened = httpx2.ASGITransport(app=world.app()), []

    def open_browser(**headers: str) -> Visitor:
        client = httpx2.AsyncClient(transport=transport, base_url=SITE, headers=headers)
        opened.append(client)
        return Visitor(client)

    yield open_browser
    for client in opened:
        await client.aclose()


@pytest.fixture
async def holder(visit, secrets: dict[str, str]) -> Visitor:
    """A browser that has signed in with the full key of an account."""
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    return browser
