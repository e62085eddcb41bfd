"""Vector stores: how quickly 10,000 chunks are indexed and searched, and how often the right passage is found.

Found by two sets of questions: one that was at hand while the search was tuned, and one by which no number was tuned.

Everything is real but Ray and HTTP: the database, the object store, the processes that read documents, LanceDB, and for
the questions all-MiniLM-L6-v2. For the 10,000 chunks vectors cost nothing, so that the figures are those of the rest.
"""

import ast
import asyncio
import os
import random
import secrets
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from deployments.state.database.connection import connect
from deployments.state.encryption.vault import Vault
from deployments.state.files.content import NewFile
from deployments.state.files.store import FileStore
from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.objects.store import BucketStore
from deployments.state.vector_stores.rows import StoredStore
from deployments.tools.config import FileSearchConfig, ToolsConfig
from serve_app.operations.registry import create_tooling
from serve_app.operations.responses.tools.contract import ToolResources
from serve_app.operations.routing import cache_salts
from serve_app.operations.vector_stores.indexing import Indexer
from serve_app.operations.vector_stores.search import FileSearch, SearchOptions
from serve_app.schemas.file_filters import HybridWeights, RankingOptions
from serve_app.schemas.vector_stores import StaticChunking, StaticSizes, StoreCreateRequest, StoreFileRequest
from serve_app.telemetry.series import PrometheusMetrics
from serve_app.telemetry.trace import Observer
from tests.tools.bench.file_search_held_out import HELD_OUT
from tests.tools.bench.file_search_questions import QUESTIONS
from tests.tools.bench.local_embeddings import MODEL, LocalEmbeddings, hash_embeddings, load_minilm
from tests.tools.bench.peers import ROOT
from tests.twins.engine import MemoryDirectory
from tests.twins.gatekeeper import MemoryGatekeeper, MemoryRequestLog, TestClock
from tests.twins.keys import principal_of_key

COLUMNS = ("what", "figure")
NUM_CHUNKS = 10_000
WHO = principal_of_key(account="acct_1", tokens_per_minute=10**9)
DOCUMENTS = (
    "*.md",
    "configs/*.yaml",
    "configs/kubernetes/*",
    "deployments/state/database/connection.py",
    "deployments/state/database/sqlite.py",
    "deployments/state/encryption/sealing.py",
    "deployments/state/database/queues.py",
    "deployments/state/objects/store.py",
    "deployments/replica/schemas/process.py",
    "serve_app/operations/containers/citations.py",
)
NO_DOCUMENTS = ("docs/reference/", "tests/tools/bench/results/")
MODULES = ("batch/*.py", "deployments/*.py", "serve_app/*.py")
HALVES = {
    "hybrid": RankingOptions(),
    "meaning alone": RankingOptions(hybrid_search=HybridWeights(embedding_weight=1, text_weight=0)),
    "words alone": RankingOptions(hybrid_search=HybridWeights(embedding_weight=0, text_weight=1)),
}


@dataclass
class Bench:
    """A search over files, on a directory of its own."""

    search: FileSearch
    indexer: Indexer
    files: FileStore
    engine: LocalEmbeddings

    async def fill(
        self, documents: dict[str, str], chunking: StaticChunking | None = None
    ) -> tuple[StoredStore, float]:
        """Return a store that holds documents, and the seconds that indexing them took."""
        ids = []
        for name, text in documents.items():
            async with self.files.create(NewFile(WHO.account, WHO.key_id, f"file-{secrets.token_hex(16)}")) as writer:
                await writer.write(text.encode())
            now = time.time()
            row = writer.row(purpose="assistants", filename=name, created_at=now, expires_at=now + 86_400)
            ids.append((await self.files.record(row)).file_id)
        made = await self.search.service.create(WHO, StoreCreateRequest())
        wanted = [StoreFileRequest(file_id=file_id, chunking_strategy=chunking) for file_id in ids]
        await self.search.service.attach(WHO, made.store_id, wanted, "files")
        started = time.perf_counter()
        while await self.indexer.step():
            pass
        took_s = time.perf_counter() - started
        store = await self.search.service.find(WHO.account, made.store_id)
        assert store.counts.completed == len(ids), store.counts
        return store, took_s

    async def count_chunks(self, store: StoredStore) -> int:
        """Return the number of chunks in the index."""
        table = await self.search.indexes.near._find(store.store_id)
        return int(await table.count_rows("passage = 0"))

    async def ask(self, store: StoredStore, question: str, ranking: RankingOptions, most: int = 5) -> Sequence[str]:
        """Return the passages that are found."""
        (store,) = await self.search.find_stores(WHO.account, [store.store_id])
        options = SearchOptions(most, ranking=ranking)
        return [hit.text for hit in (await self.search.search(WHO, [store], [question], options, request_id="b")).hits]


@asynccontextmanager
async def open_bench(folder: Path, engine: LocalEmbeddings) -> AsyncIterator[Bench]:
    """Open a search over files in an empty folder."""
    database = await connect(f"sqlite+aiosqlite:///{folder}/manta.db")
    place = ResolvedObjectStore((folder / "objects").as_uri())
    files = FileStore(database, BucketStore(place), Vault(database, b"m" * 32))
    directory = MemoryDirectory([engine])
    config = ToolsConfig(file_search=FileSearchConfig(embedding_model=MODEL))
    resources = ToolResources(config, database, files, directory, cache_salts(b"salt"), place)
    search = create_tooling(resources).file_search
    assert search is not None
    observer = Observer(MemoryRequestLog(), PrometheusMetrics())
    gatekeeper = MemoryGatekeeper({}, TestClock())
    indexer = Indexer(search.service, search.indexes, search.embedder, gatekeeper, observer)
    yield Bench(search, indexer, files, engine)
    await database.close()


def run(rounds: int) -> list[list[str]]:
    """Return a row for each figure."""
    return asyncio.run(_run(rounds))


async def _run(rounds: int) -> list[list[str]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        async with open_bench(Path(folder), LocalEmbeddings(hash_embeddings)) as bench:
            rows += await _speed(bench, rounds)
    return rows + await measure_recall()


async def measure_recall() -> list[list[str]]:
    """Return rows that say how often the right passage is found, of both sets of questions."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        async with open_bench(Path(folder), LocalEmbeddings(load_minilm())) as bench:
            rows += await _recall(bench, "documents of the project", read_documents(DOCUMENTS), QUESTIONS)
            rows += await _recall(bench, "modules' docstrings, held out", read_docstrings(), HELD_OUT)
    return rows


async def _speed(bench: Bench, rounds: int) -> list[list[str]]:
    words = [word for text in read_documents(("*.md",)).values() for word in text.split()]
    choose = random.Random(1)
    text = {f"{n}.txt": " ".join(choose.choices(words, k=60_000)) for n in range(9)}
    chunking = StaticChunking(type="static", static=StaticSizes(max_chunk_size_tokens=100, chunk_overlap_tokens=0))
    store, took_s = await bench.fill(text, chunking)
    num_chunks = await bench.count_chunks(store)
    rows = [
        ["chunks indexed", f"{num_chunks:,}"],
        ["calls of the embedding model for them, texts", f"{bench.engine.num_calls}, {bench.engine.num_inputs:,}"],
        ["chunks a second, reading and writing, vectors at no cost", f"{num_chunks / took_s:,.0f}"],
    ]
    for name, ranking in HALVES.items():
        times, spent_s = [], time.process_time()
        for _ in range(20 * rounds):
            question = " ".join(choose.choices(words, k=8))
            started = time.perf_counter()
            assert len(await bench.ask(store, question, ranking, 10)) > 0
            times.append(1000 * (time.perf_counter() - started))
        spent_ms = 1000 * (time.process_time() - spent_s) / len(times)
        times.sort()
        at = [f"{times[int(share * (len(times) - 1))]:.1f}" for share in (0.0, 0.5, 0.95)]
        rows.append([f"search of all chunks for 10 results, {name}, ms (least, p50, p95)", ", ".join(at)])
        rows.append([f"processor time of one, {name}, ms", f"{spent_ms:.1f}"])
    rows.append(["load average of the machine meanwhile", f"{os.getloadavg()[0]:.0f}"])
    return rows


def find_stale(documents: dict[str, str], questions: Sequence[tuple[str, str]]) -> list[str]:
    """Return the questions whose answer no document holds."""
    whole = " ".join(" ".join(text.split()) for text in documents.values())
    return [question for question, answer in questions if " ".join(answer.split()) not in whole]


async def _recall(
    bench: Bench, name: str, documents: dict[str, str], questions: Sequence[tuple[str, str]]
) -> list[list[str]]:
    assert not (stale := find_stale(documents, questions)), f"these have no answer any more: {stale}"
    store, took_s = await bench.fill(documents)
    num_chunks = await bench.count_chunks(store)
    rows = [
        [f"{len(documents)} {name}, auto chunking: chunks", f"{num_chunks:,}"],
        ["seconds to index them with all-MiniLM-L6-v2 in the same process", f"{took_s:.1f}"],
    ]
    for half, ranking in HALVES.items():
        missed = [
            question
            for question, answer in questions
            if not any(
                " ".join(answer.split()) in " ".join(t.split()) for t in await bench.ask(store, question, ranking)
            )
        ]
        recall = 1 - len(missed) / len(questions)
        rows.append([f"recall at 5 of {len(questions)} questions, {half}", f"{recall:.3f}"])
    return rows


def read_documents(patterns: Sequence[str]) -> dict[str, str]:
    """Return the project's own documents by their names, without the generated pages and single runs of the bench."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.split() if not name.startswith(NO_DOCUMENTS)]
    return {name: (ROOT / name).read_text() for name in names}


def read_docstrings() -> dict[str, str]:
    """Return the docstrings of the project's modules, what is public in them included, but for those of `DOCUMENTS`."""
    listed = subprocess.run(["git", "ls-files", *MODULES], cwd=ROOT, capture_output=True, text=True, check=True)
    documents = {}
    for name in listed.stdout.split():
        tree = ast.parse((ROOT / name).read_text())
        told = [ast.get_docstring(tree) or ""]
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith(
                "_"
            ):
                told.append(f"{node.name}: {ast.get_docstring(node) or ''}")
        if told[0] and name not in DOCUMENTS:
            documents[name.replace("/", ".").removesuffix(".py") + ".txt"] = "\n\n".join(told)
    return documents
