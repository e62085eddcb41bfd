"""The gatekeeper's snapshots in the database: what every key was charged, and the journal segment that continues it.

`GatekeeperProcess` saves one every few seconds and loads the last one when it starts.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import delete, select

from deployments.limits.ledger import Charges
from deployments.limits.window import WINDOW_S
from deployments.state.database.connection import Database
from deployments.state.database.ids import id_groups
from deployments.state.database.tables import limiter_charges, limiter_state

_NAME = "gatekeeper"
_ENTRY = struct.Struct("<dq")

# A charge lies at most the validity of a lease in the future: all that was saved longer ago has expired.
_KEPT_S = 2 * WINDOW_S


class Snapshot(NamedTuple):
    """The charges saved at `at`; `segment` is the first of the journal that may have later changes."""

    journal_id: str
    segment: int
    at: float
    charges: list[Charges]


async def load_snapshot(database: Database, region: str = "") -> Snapshot | None:
    """Return the last snapshot of a region; None if there never was one.

    A region without one continues from that of the time before it had a name.
    """
    async with database.read() as connection:
        named = limiter_state.c.name == _NAME, limiter_state.c.region.in_({region, ""})
        query = select(limiter_state).where(*named).order_by(limiter_state.c.region.desc()).limit(1)
        state = (await connection.execute(query)).one_or_none()
        if state is None:
            return None
        query = select(limiter_charges).where(
            limiter_charges.c.region == state.region, limiter_charges.c.at >= state.at - _KEPT_S
        )
        rows = (await connection.execute(query)).all()
    charges = [Charges(r.key_id, r.version, _unpack(r.requests), _unpack(r.tokens)) for r in rows]
    return Snapshot(state.journal, state.segment, state.at, charges)


async def save_snapshot(database: Database, snapshot: Snapshot, region: str = "") -> None:
    """Save the charged keys of a region's snapshot, beside those saved earlier, and its place in the journal."""
    rows = [
        {
            "region": region,
            "key_id": charges.key_id,
            "at": snapshot.at,
            "version": charges.number,
            "requests": _pack(charges.requests),
            "tokens": _pack(charges.tokens),
        }
        for charges in snapshot.charges
    ]
    async with database.write() as connection:
        if rows:
            await connection.execute(database.upsert(limiter_charges, ["region", "key_id"]), rows)
        old = limiter_charges.c.at < snapshot.at - _KEPT_S
        await connection.execute(delete(limiter_charges).where(limiter_charges.c.region == region, old))
        state = {
            "region": region,
            "name": _NAME,
            "journal": snapshot.journal_id,
            "segment": snapshot.segment,
            "at": snapshot.at,
        }
        await connection.execute(database.upsert(limiter_state, ["region", "name"]), [state])


async def used_in_minute(database: Database, key_ids: Sequence[str], now: float) -> dict[str, tuple[int, int]]:
    """Return how many requests and tokens count against the minute of each key at `now`.

    It is the sum over all regions, as of their last snapshots. Keys that were not charged are left out.
    Room that is leased to an ingress replica counts as used.
    """
    used: dict[str, tuple[int, int]] = {}
    async with database.read() as connection:
        for ids in id_groups(key_ids):
            query = select(limiter_charges).where(
                limiter_charges.c.key_id.in_(ids), limiter_charges.c.at >= now - _KEPT_S
            )
            for row in (await connection.execute(query)).all():
                counts = [
                    sum(a for at, a in _unpack(data) if at + WINDOW_S > now) for data in (row.requests, row.tokens)
                ]
                requests, tokens = used.get(row.key_id, (0, 0))
                used[row.key_id] = (requests + counts[0], tokens + counts[1])
    return used


def _pack(entries: list[tuple[float, int]]) -> bytes:
    return b"".join(_ENTRY.pack(at, amount) for at, amount in entries)


def _unpack(data: bytes) -> list[tuple[float, int]]:
    return [(at, amount) for at, amount in _ENTRY.iter_unpack(data)]
