"""The request log of a running service."""

import asyncio

from deployments.state.usage.record import RequestRecord
from tests.service import Service
from tests.waiting import eventually

_SETTLED_S = 1.0
"""A replica writes twice in this time."""


async def only_record(service: Service, key_id: str) -> RequestRecord:
    """Return the one record of a key, once it is written."""
    (record,) = await first_records(service, key_id, 1)
    return record


async def records_of(service: Service, key_id: str, at_least: int) -> list[RequestRecord]:
    """Return the records of a key, once there are that many and no more are written."""
    records = await first_records(service, key_id, at_least)
    while True:
        num_before = len(records)
        await asyncio.sleep(_SETTLED_S)
        records = await _read(service, key_id)
        if len(records) == num_before:
            return records


async def first_records(service: Service, key_id: str, at_least: int) -> list[RequestRecord]:
    """Return the records of a key as soon as there are that many."""
    records: list[RequestRecord] = []

    async def are_there() -> bool:
        records[:] = await _read(service, key_id)
        return len(records) >= at_least

    await eventually(are_there, 60)
    return records


async def _read(service: Service, key_id: str) -> list[RequestRecord]:
    found: list[RequestRecord] = await service.with_usage(lambda usage: usage.last_requests(key_id, limit=100))
    return found
