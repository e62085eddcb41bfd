"""50,000 lines and 200 MB through everything of a batch but the models: validation, segments, the ledger, the merge.

    python -m tests.bench.batch_pipeline

The engine is the twin of the tests, in this process, as are the coordinator and its worker.
"""

import asyncio
import threading
import time
from tempfile import TemporaryDirectory

import orjson
import psutil

from batch.config import BatchConfig
from batch.coordinator import Coordinator
from batch.fleet import LocalFleet
from batch.stores import create_stores
from batch.worker import LineWorker
from deployments.models.engine import EngineRequest
from deployments.state.account_keys import Vault
from deployments.state.batch_rows import NewBatch
from deployments.state.batches import BatchStore
from deployments.state.database import connect
from deployments.state.file_content import NewFile
from deployments.state.files import FileStore
from deployments.state.object_config import ResolvedObjectStore
from deployments.state.objects import BucketStore
from deployments.state.protocol import Principal
from deployments.state.retention import FilesConfig
from serve_app.operations.registry import create_operations
from serve_app.operations.routing import cache_salts
from tests.contract.http.answers import MODEL, answer
from tests.twins.engine import MemoryDirectory, ScriptedEngine, ScriptedStream, model_card

NUM_LINES, LINE_CHARS = 50_000, 4_000
URL = "/v1/chat/completions"
PRINCIPAL = Principal("key-1", "bench", "bench", "enterprise", 1, 1)
MIB = 1024 * 1024


class ForgetfulEngine(ScriptedEngine):
    """An engine that keeps nothing of what it was asked."""

    def run(self, request: EngineRequest) -> ScriptedStream:
        return ScriptedStream(self.script(request), request)


class MemoryWatch:
    """The most memory that this process has held since it was made."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self.first = self.most = self._process.memory_info().rss
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.most = max(self.most, self._process.memory_info().rss)
            time.sleep(0.02)


async def write_input(files: FileStore) -> int:
    """Store the input; return its size in bytes."""
    content = "x" * LINE_CHARS
    async with files.create(NewFile("bench", "key-1", "file-1")) as writer:
        for number in range(NUM_LINES):
            body = {"model": MODEL, "messages": [{"role": "user", "content": content}]}
            line = {"custom_id": str(number), "method": "POST", "url": URL, "body": body}
            await writer.write(orjson.dumps(line) + b"\n")
    now = files.clock()
    await files.record(writer.row(purpose="batch", filename="in.jsonl", created_at=now, expires_at=now + 86_400))
    return writer.num_bytes


async def run(directory: str) -> None:
    """Run the batch and print when it got how far."""
    database = await connect(f"sqlite+aiosqlite:///{directory}/bench.db")
    vault = Vault(database, b"m" * 32)
    files = FileStore(database, BucketStore(ResolvedObjectStore(f"file://{directory}/objects")), vault)
    batches = BatchStore(database, vault)
    stores = create_stores(database, files.objects, files, batches)
    num_bytes = await write_input(files)
    config = BatchConfig()
    directory_of_models = MemoryDirectory([ForgetfulEngine(model_card(MODEL, max_model_len=100_000), answer)])
    operations = create_operations(directory_of_models, cache_salts(b"salt")).by_path()
    coordinator = Coordinator(stores, LocalFleet(LineWorker(stores, operations, config)), config, FilesConfig())
    watch = MemoryWatch()
    batch = await batches.create(NewBatch(PRINCIPAL, "file-1", URL, "24h", 86_400.0))
    started, running = time.perf_counter(), asyncio.create_task(coordinator.run())
    print(f"{NUM_LINES} lines, {num_bytes} bytes; {watch.first // MIB} MiB held before")
    status, num_seen = "validating", 0
    while not (state := (await batches.find("bench", batch.batch_id)).state).has_ended or status != state.status:
        elapsed_s = time.perf_counter() - started
        if state.status != status:
            print(f"{elapsed_s:6.1f} s  {state.status}")
            status = state.status
        if state.num_completed // 10_000 > num_seen:
            num_seen = state.num_completed // 10_000
            print(f"{elapsed_s:6.1f} s  {state.num_completed} lines")
        await asyncio.sleep(0.05)
    print(f"{watch.most // MIB} MiB held at most")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await stores.close()


if __name__ == "__main__":
    with TemporaryDirectory(prefix="mb-", dir="/tmp") as place:
        asyncio.run(run(place))
