"""The gatekeeper's snapshots in the database: the charges of every key, and the journal segment that continues them.

`GatekeeperProcess` saves one every few seconds and loads the last one when it starts.
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Table, delete, select

from deployments.limits.ledger import Charges
from deployments.limits.window import WINDOW_S
from deployments.state.database.connection import Database
from deployments.state.database.queries import id_groups
from deployments.state.database.tables.service import (
    limiter_charges,
    limiter_state,
    region_limiter_charges,
    region_limiter_state,
)

_NAME = "gatekeeper"
_ENTRY = struct.Struct("<dq")

# A charge is at most the validity of a lease in the future: older rows have expired.
_KEPT_S = 2 * WINDOW_S


class Snapshot(NamedTuple):
    """The charges saved at `at`; `segment` is the first segment of the journal with later changes.

    After a clean stop there are no later changes, and `serials` has those of all clients.
    """

    journal_id: str
    segment: int
    at: float
    charges: list[Charges]
    serials: dict[str, int] | None = None


async def load_snapshot(database: Database, region: str = "") -> Snapshot | None:
    """Return the last snapshot of a region; None if there is none.

    A region that has just been named continues from the snapshot without a name.
    """
    found = None
    async with database.read() as connection:
        for of in dict.fromkeys((region, "")):
            states, charges = _tables_of(of)
            named = states.c.name == _NAME, *_in_region(states, of)
            state = (await connection.execute(select(states).where(*named))).one_or_none()
            if state is not None:
                recent = charges.c.at >= state.at - _KEPT_S, *_in_region(charges, of)
                found = state, (await connection.execute(select(charges).where(*recent))).all()
                break
    if found is None:
        return None
    state, rows = found
    charged = [Charges(r.key_id, r.version, _unpack(r.requests), _unpack(r.tokens)) for r in rows]
    stopped = state.stopped or {}
    # The version before does not update this column when it saves a later snapshot.
    serials = stopped["serials"] if stopped.get("at") == state.at else None
    return Snapshot(state.journal, state.segment, state.at, charged, serials)


async def save_snapshot(database: Database, snapshot: Snapshot, region: str = "") -> None:
    """Save the keys of a region's snapshot, beside those saved earlier, and its place in the journal."""
    states, charges = _tables_of(region)
    of_region = {"region": region} if region else {}
    rows = [
        {
            **of_region,
            "key_id": charged.key_id,
            "at": snapshot.at,
            "version": charged.number,
            "requests": _pack(charged.requests),
            "tokens": _pack(charged.tokens),
        }
        for charged in snapshot.charges
    ]
    async with database.write() as connection:
        if rows:
            await connection.execute(database.upsert(charges, [*of_region, "key_id"]), rows)
        old = charges.c.at < snapshot.at - _KEPT_S, *_in_region(charges, region)
        await connection.execute(delete(charges).where(*old))
        state = {
            **of_region,
            "name": _NAME,
            "journal": snapshot.journal_id,
            "segment": snapshot.segment,
            "at": snapshot.at,
            "stopped": None if snapshot.serials is None else {"at": snapshot.at, "serials": snapshot.serials},
        }
        await connection.execute(database.upsert(states, [*of_region, "name"]), [state])


async def used_in_minute(database: Database, key_ids: Sequence[str], now: float) -> dict[str, tuple[int, int]]:
    """Return the requests and tokens charged to the minute of each key at `now`, over all regions.

    They are as of the last snapshots. Leased room counts as used. Keys without charges are left out.
    """
    used: dict[str, tuple[int, int]] = {}
    async with database.read() as connection:
        for ids in id_groups(key_ids):
            rows: list[Any] = []
            for table in (limiter_charges, region_limiter_charges):
                query = select(table).where(table.c.key_id.in_(ids), table.c.at >= now - _KEPT_S)
                rows += (await connection.execute(query)).all()
            for row in rows:
                counts = [
                    sum(a for at, a in _unpack(data) if at + WINDOW_S > now) for data in (row.requests, row.tokens)
                ]
                requests, tokens = used.get(row.key_id, (0, 0))
                used[row.key_id] = (requests + counts[0], tokens + counts[1])
    return used


def _tables_of(region: str) -> tuple[Table, Table]:
    """Return the tables of state and charges: those of a region, or of a service without regions."""
    return (region_limiter_state, region_limiter_charges) if region else (limiter_state, limiter_charges)


def _in_region(table: Table, region: str) -> list[ColumnElement[bool]]:
    return [table.c.region == region] if region else []


def _pack(entries: list[tuple[float, int]]) -> bytes:
    return b"".join(_ENTRY.pack(at, amount) for at, amount in entries)


def _unpack(data: bytes) -> list[tuple[float, int]]:
    return [(at, amount) for at, amount in _ENTRY.iter_unpack(data)]
