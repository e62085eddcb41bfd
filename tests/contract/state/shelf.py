"""A file store for tests: a real database over objects in memory."""

from deployments.state.database.connection import Database
from deployments.state.encryption.vault import Vault
from deployments.state.files.content import NewFile
from deployments.state.files.store import FileStore, StoredFile, count_bytes
from tests.twins.gatekeeper import TestClock
from tests.twins.objects import MemoryObjects


async def num_bytes_of(store: FileStore, account: str) -> int:
    async with store._database.read() as connection:
        return await count_bytes(connection, account, store.clock())


class Shelf:
    """A file store, and what is beneath it."""

    def __init__(self, database: Database) -> None:
        self.clock = TestClock()
        self.uptime = TestClock(0.0)
        self.objects = MemoryObjects(self.clock)
        self.database = database
        self.store = FileStore(database, self.objects, Vault(database, b"m" * 32), self.clock, self.uptime)
        self._count = 0

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.uptime.advance(seconds)

    async def add(
        self, content: bytes = b"content", account: str = "acct", lives_s: float = 3600, **more
    ) -> StoredFile:
        self._count += 1
        new = NewFile(account, "key-1", more.pop("file_id", f"file-{self._count}"))
        async with self.store.create(new) as writer:
            for start in range(0, len(content), 100_000):
                await writer.write(content[start : start + 100_000])
        now = self.clock()
        values = {"purpose": "batch", "filename": "in.jsonl", "created_at": now, "expires_at": now + lives_s, **more}
        return await self.store.record(writer.row(**values))

    async def content(self, file: StoredFile, *span: int) -> bytes:
        return b"".join([piece async for piece in self.store.read(file, *span)])
