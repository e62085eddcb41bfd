"""The request log of a running service."""

import asyncio
import time

from deployments.state.usage.record import RequestRecord
from tests.service import Service


async def only_record(service: Service, key_id: str) -> RequestRecord:
    """Return the one record of a key, once it is written."""
    deadline = time.monotonic() + 60
    while not (records := await service.with_usage(lambda usage: usage.last_requests(key_id, limit=5))):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.5)
    (record,) = records
    return record
