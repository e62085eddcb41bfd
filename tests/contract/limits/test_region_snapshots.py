"""Snapshots in one database: each region's gatekeeper reads its own, and what the version before saved."""

from sqlalchemy import update

from deployments.limits.ledger import Charges
from deployments.limits.snapshots import Snapshot, load_snapshot, save_snapshot, used_in_minute
from deployments.state.database.connection import Database
from deployments.state.database.tables.service import limiter_state, region_limiter_state


async def test_a_region_reads_its_own_charges_or_those_from_before_it_had_a_name(database: Database) -> None:
    def snapshot(journal: str, amount: int) -> Snapshot:
        return Snapshot(journal, 1, 100.0, [Charges("key", 1, [(100.0, amount)], [])])

    await save_snapshot(database, snapshot("old", 1))
    assert await load_snapshot(database, "a") == snapshot("old", 1)
    await save_snapshot(database, snapshot("one", 2), "a")
    await save_snapshot(database, snapshot("two", 4), "b")
    assert await load_snapshot(database, "a") == snapshot("one", 2)
    assert await load_snapshot(database, "b") == snapshot("two", 4)
    assert await load_snapshot(database) == snapshot("old", 1)
    assert await used_in_minute(database, ["key"], 101.0) == {"key": (7, 0)}


async def test_a_snapshot_by_the_version_before_is_not_taken_for_the_last_of_a_gatekeeper_that_stopped(
    database: Database,
) -> None:
    for region, states in (("", limiter_state), ("a", region_limiter_state)):
        last = Snapshot("journal", 1, 100.0, [], {"client": 7})
        await save_snapshot(database, last, region)
        assert await load_snapshot(database, region) == last
        async with database.write() as connection:  # It knows nothing of the column that says so.
            await connection.execute(update(states).values(at=105.0, segment=2))
        assert await load_snapshot(database, region) == Snapshot("journal", 2, 105.0, [])
