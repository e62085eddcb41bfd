"""What the drills read of the request log."""

import asyncio
from pathlib import Path

import pytest

from deployments.state.config import StateConfig
from deployments.state.database.connection import Database
from deployments.state.usage.store import UsageStore
from tests.contract.state.records import record
from tests.tools.drills import ledger
from tests.tools.drills.ledger import Ledger


async def test_log_is_read_once_it_has_every_answer(
    database: Database, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "SETTLED_S", 0.1)
    first, last = record(1), record(2)
    usage = UsageStore(database)
    await usage.add([first])
    reading = asyncio.create_task(
        Ledger(database_url, StateConfig(state_dir=tmp_path)).read(first.key_id, {first.request_id, last.request_id})
    )
    await asyncio.sleep(1.5)
    assert not reading.done()
    await usage.add([last])
    charged = await reading
    assert {one.request_id for one in charged.records} == {first.request_id, last.request_id}
    assert charged.usage_tokens == (2 * first.prompt_tokens, 2 * first.completion_tokens)
