"""What vector stores hold, noted by the hour and the day."""

from sqlalchemy import delete, insert

from deployments.state.database.connection import Database
from deployments.state.database.tables.content import vector_store_files as files
from deployments.state.usage.reading import StoredBytes, UsageReader
from deployments.state.usage.rollups import note_store_bytes
from tests.contract.state.records import NOON


def file(number: int, account: str, usage_bytes: int) -> dict[str, object]:
    empty = {column.name: 0 for column in files.c if not column.nullable}
    texts = dict.fromkeys(("store_id", "key_id", "status", "run_id", "indexed_in"), "x")
    blobs = {"wrapped_key": b"", "sealed_record": b"", "principal": {}}
    return {**empty, **texts, **blobs, "file_id": f"file-{number}", "account": account, "usage_bytes": usage_bytes}


async def test_the_last_note_of_a_period_is_what_it_is_shown_with(database: Database) -> None:
    reader = UsageReader(database)
    async with database.write() as connection:
        await connection.execute(insert(files), [file(1, "acme", 5), file(2, "acme", 6), file(3, "other", 7)])
    await note_store_bytes(database, lambda: NOON)
    async with database.write() as connection:
        await connection.execute(delete(files).where(files.c.account == "acme"))
    assert await reader.vector_store_bytes("1h", NOON, NOON + 1) == [StoredBytes(NOON, None, 18)]
    await note_store_bytes(database, lambda: NOON + 3_599)
    await note_store_bytes(database, lambda: NOON + 3_600)
    hours = await reader.vector_store_bytes("1m", NOON, NOON + 7_200, by_account=True)
    assert hours == [
        StoredBytes(NOON, "acme", 0),
        StoredBytes(NOON, "other", 7),
        StoredBytes(NOON + 3_600, "other", 7),
    ]
    (day,) = await reader.vector_store_bytes("1d", NOON, NOON + 1, accounts=("other",))
    assert day.num_bytes == 7
