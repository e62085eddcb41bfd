"""Two regions' snapshots in one database: each gatekeeper reads its own."""

from deployments.limits.ledger import Charges
from deployments.limits.snapshots import Snapshot, load_snapshot, save_snapshot, used_in_minute
from deployments.state.database.connection import Database


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
