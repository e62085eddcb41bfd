"""50,000 lines and 200 MB through everything of a batch but the models: validation, segments, the ledger, the merge.

    python -m tests.tools.bench.batch_pipeline

The engine is the twin of the tests, in this process, as are the coordinator and its worker. The status is 1 where a
bound is broken: of the time to validate, of the memory, or that the last 10,000 lines take no longer than the first.
"""

import asyncio
import sys
import threading
import time
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory

import orjson
import psutil

from batch.config import BatchConfig
from batch.coordinator import Coordinator
from batch.run import RunContext
from batch.stores import create_stores
from batch.worker import LineWorker
from deployments.models.contract.engine import EngineRequest
from deployments.state.batches.rows import NewBatch
from deployments.state.batches.store import BatchStore
from deployments.state.config import FilesConfig
from deployments.state.database.connection import connect
from deployments.state.encryption.vault import Vault
from deployments.state.files.content import NewFile
from deployments.state.files.store import FileStore
from deployments.state.identity.tiers import Tiers
from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.objects.store import BucketStore
from serve_app.operations.registry import create_operations
from serve_app.operations.routing import cache_salts
from tests.contract.http.answers import MODEL, answer
from tests.twins.engine import MemoryDirectory, ScriptedEngine, ScriptedStream, model_card
from tests.twins.fleet import LocalFleet
from tests.twins.keys import principal_of_key

NUM_LINES, LINE_CHARS = 50_000, 4_000
URL = "/v1/chat/completions"
PRINCIPAL = principal_of_key(account="bench", tier="enterprise", requests_per_minute=1, tokens_per_minute=1)
MIB = 1024 * 1024
SPAN = 10_000
MAX_VALIDATION_S, MAX_MIB = 20.0, 512
MAX_GROWTH = 1.25  # Of the time of the last lines over that of the first: a busy machine varies by as much.


@dataclass
class Course:
    """How a batch went: seconds from its creation to where it was."""

    validated_s: float = 0.0
    ended_s: float = 0.0
    most_mib: int = 0
    seen: list[tuple[float, int]] = field(default_factory=list)

    def time_at(self, num_lines: int) -> float:
        """Return when `num_lines` were done, between the commits around it in proportion."""
        before = (self.validated_s, 0)
        for at in self.seen:
            if at[1] >= num_lines:
                share = (num_lines - before[1]) / max(1, at[1] - before[1])
                return before[0] + share * (at[0] - before[0])
            before = at
        raise ValueError(f"{num_lines} lines were never done.")

    def broken_bounds(self, num_lines: int = NUM_LINES) -> list[str]:
        """Return what is worse than it may be."""
        first_s = self.time_at(SPAN) - self.validated_s
        last_s = self.time_at(num_lines) - self.time_at(num_lines - SPAN)
        broken = []
        if self.validated_s > MAX_VALIDATION_S:
            broken.append(f"It was validated after {self.validated_s:.1f} s; the bound is {MAX_VALIDATION_S:g}.")
        if self.most_mib > MAX_MIB:
            broken.append(f"{self.most_mib} MiB were held; the bound is {MAX_MIB}.")
        if last_s > MAX_GROWTH * first_s:
            broken.append(f"The last {SPAN} lines took {last_s:.2f} s, the first {first_s:.2f} s.")
        return broken


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


async def run(directory: str) -> Course:
    """Run the batch; return how it went."""
    database = await connect(f"sqlite+aiosqlite:///{directory}/bench.db")
    vault = Vault(database, b"m" * 32)
    files = FileStore(database, BucketStore(ResolvedObjectStore(f"file://{directory}/objects")), vault)
    batches = BatchStore(database, vault)
    stores = create_stores(database, files.objects, files, batches)
    num_bytes = await write_input(files)
    config = BatchConfig()
    directory_of_models = MemoryDirectory([ForgetfulEngine(model_card(MODEL, max_model_len=100_000), answer)])
    operations = create_operations(directory_of_models, cache_salts(b"salt")).by_path()
    fleet = LocalFleet(LineWorker(stores, operations, config))
    coordinator = Coordinator(RunContext(stores, fleet, config, FilesConfig(), Tiers()))
    watch = MemoryWatch()
    batch = await batches.create(NewBatch(PRINCIPAL, "file-1", URL, "24h", 86_400.0))
    started, running = time.perf_counter(), asyncio.create_task(coordinator.run())
    print(f"{NUM_LINES} lines, {num_bytes} bytes; {watch.first // MIB} MiB held before")
    course = Course()
    while not (state := (await batches.find("bench", batch.batch_id)).state).has_ended:
        elapsed_s = time.perf_counter() - started
        if state.status != "validating" and not course.validated_s:
            course.validated_s = elapsed_s
        if state.num_completed > (course.seen[-1][1] if course.seen else 0):
            course.seen.append((elapsed_s, state.num_completed))
        await asyncio.sleep(0.02)
    course.ended_s, course.most_mib = time.perf_counter() - started, watch.most // MIB
    course.seen.append((course.ended_s, state.num_completed))
    assert (state.status, state.num_completed) == ("completed", NUM_LINES)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await stores.close()
    return course


def main() -> int:
    """Run the batch, print how it went; return 1 where a bound is broken."""
    with TemporaryDirectory(prefix="mb-", dir="/tmp") as place:
        course = asyncio.run(run(place))
    print(f"{course.validated_s:6.1f} s  validated")
    for num_lines in range(SPAN, NUM_LINES + 1, SPAN):
        took_s = course.time_at(num_lines) - course.time_at(num_lines - SPAN)
        print(f"{course.time_at(num_lines):6.1f} s  {num_lines} lines, the last {SPAN} in {took_s:.2f} s")
    print(f"{course.ended_s:6.1f} s  ended; {course.most_mib} MiB held at most")
    broken = course.broken_bounds()
    print("\n".join(broken) or "within all bounds")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
