"""Turns of responses to be stored, and the stores that keep them, over SQLite and PostgreSQL."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from deployments.state.database.connection import connect
from deployments.state.encryption.vault import Vault
from deployments.state.responses.background import BackgroundStore
from deployments.state.responses.conversations import ConversationStore
from deployments.state.responses.store import ResponseStore
from deployments.state.responses.values import StoredTurn
from tests.twins.gatekeeper import TestClock

ME, OTHER = "acct_1", "acct_2"
DAY = 86_400.0


@dataclass
class Stores:
    responses: Any
    background: Any
    conversations: Any
    clock: TestClock
    uptime: Any
    database: Any


def over(database, clock, uptime=time.monotonic) -> Stores:
    vault = Vault(database, b"m" * 32)
    background = BackgroundStore(database, vault, clock, uptime)
    others = [kind(database, vault, clock) for kind in (ResponseStore, ConversationStore)]
    return Stores(others[0], background, others[1], clock, uptime, database)


@pytest.fixture(params=["sqlite", "postgresql"])
async def stores(request, tmp_path, sqlite_at) -> AsyncIterator[Stores]:
    clock, uptime = TestClock(), TestClock(0.0)
    if request.param == "postgresql":
        database = await connect(request.getfixturevalue("postgres_url"))
    else:
        database = await connect(sqlite_at(tmp_path / "manta.db"))
    yield over(database, clock, uptime)
    await database.close()


def message(item_id: str, role: str = "user", words: str = "Hi.") -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": words}]
    return {"id": item_id, "type": "message", "role": role, "status": "completed", "content": content}


def turn(name: str, previous: str | None = None, status: str = "completed", words: str = "Hi.") -> StoredTurn:
    output = [message(f"msg_{name}_out", "assistant", words)] if status == "completed" else []
    response = {
        "id": f"resp_{name}",
        "created_at": 1_700_000_000,
        "status": status,
        "previous_response_id": previous and f"resp_{previous}",
        "output": output,
        "metadata": {"a": words},
    }
    return StoredTurn(response, [message(f"msg_{name}_in", words=words)], {"fc_1": ["f", "{}", words]}, [1, [2, 3]])


async def save(stores, name, previous=None, account=ME, expires_in=DAY, words="Hi.", **more):
    made = turn(name, previous, words=words)
    await stores.responses.save(account, made, expires_at=stores.clock() + expires_in, **more)


def ids(past) -> list[str]:
    return [item["id"] for one in past for item in one.items]


async def begin(stores, name="a", job=None, account=ME, key_id="key_1"):
    return await stores.background.start(
        account,
        turn(name, status="queued"),
        job or {"raw": "x"},
        key_id=key_id,
        events=[b'{"n":0}', b'{"n":1}'],
        expires_at=stores.clock() + DAY,
        lease_s=10,
    )
