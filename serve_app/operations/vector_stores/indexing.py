"""Indexes files that are put into vector stores, and tidies their indexes, behind requests.

Work stands in the database and is claimed under a lease: any replica may do it, and another begins a file again where
one dies. A file that fails says why; the others go on. `wiring` makes one indexer for each ingress replica.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from deployments.limits.contract import Gatekeeper, Granted
from deployments.models.contract.engine import Usage
from deployments.state.files.store import FileNotFound
from deployments.state.identity.principal import Principal
from deployments.state.objects.store import StoreUnavailable
from deployments.state.vector_stores.rows import ClaimedFile, ErrorCode
from deployments.state.vector_stores.work import Claim, Tidying, VectorStoreWork
from deployments.tools.documents.chunks import Chunk
from deployments.tools.documents.readers import InvalidFile, UnsupportedFile
from deployments.tools.documents.reading import ChunkSizes, ReadingLimits, read_chunks
from deployments.tools.search_index.index import PRUNE_AFTER_S, IndexUnavailable
from deployments.tools.search_index.pair import IndexPair
from deployments.tools.search_index.rows import ChunkKey, ChunkRows, Vectors
from deployments.tools.search_index.terms import TermCoder
from deployments.waiting import wait_at_most
from serve_app.errors.api import ApiError
from serve_app.operations.vector_stores.embedder import Embedder
from serve_app.operations.vector_stores.service import VectorStoreService
from serve_app.telemetry.log import log_bug
from serve_app.telemetry.observer import Observer
from serve_app.telemetry.trace import RequestTrace

ROUTE = "/v1/vector_stores (indexing)"
PRIORITY = 10
"""Interactive requests go before: as for batches, a larger number waits."""

_TOO_LARGE = "The file is larger than the {most} MiB that can be searched. Split it, and upload the parts."
_GONE = "The file was deleted."
_FAILED = "The file could not be indexed. Please try again."
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Timing:
    """How often each thing happens, in seconds, and how much is claimed at once.

    `look_s` is how often a replica looks for work of other replicas.
    """

    lease_s: float = 30.0
    look_s: float = 2.0
    max_files: int = 32
    max_group_bytes: int = 32 * _MIB


@dataclass(slots=True)
class _ReadFile:
    """A file whose text has been read, with its rows for the index."""

    claimed: ClaimedFile
    chunks: list[Chunk]
    rows: list[ChunkRows] = field(default_factory=list)

    @property
    def passages(self) -> list[str]:
        return [passage for chunk in self.chunks for passage in chunk.passages()]


class Indexer:
    """The indexing that runs in this process."""

    def __init__(
        self,
        service: VectorStoreService,
        indexes: IndexPair,
        embedder: Embedder,
        gatekeeper: Gatekeeper,
        observer: Observer,
        timing: Timing | None = None,
        region: str = "",
    ) -> None:
        self._work = VectorStoreWork(service.stores, region=region)
        self._files = service.uploads
        self._indexes = indexes
        self._embedder = embedder
        self._config = config = service.config
        self._gatekeeper = gatekeeper
        self._observer = observer
        self._timing = timing or Timing()
        self._limits = ReadingLimits(config.read_memory_mib * _MIB, config.read_timeout_s)
        self._has_news = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        service.wake = self.wake

    def wake(self) -> None:
        """Look for work now."""
        self._has_news.set()

    def watch(self) -> None:
        """Look for work from now on."""
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stop; another replica begins again what is under way."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def _watch(self) -> None:
        while True:
            self._has_news.clear()
            try:
                while await self.step():
                    pass
            except Exception as error:  # The database may be away; its leases lapse, and it is looked at again.
                log_bug("indexing", error)
            await wait_at_most(self._has_news, self._timing.look_s)

    async def step(self) -> bool:
        """Do one piece of work; return whether there was any."""
        claim = await self._work.claim(self._timing.lease_s, self._timing.max_files)
        if claim is not None:
            await self._index_claim(claim)
            return True
        tidying = await self._work.claim_tidying(self._timing.lease_s)
        if tidying is None:
            return False
        return await self._tidy(tidying)

    async def _index_claim(self, claim: Claim) -> None:
        renewing = asyncio.create_task(self._renew(claim.run_id))
        try:
            group: list[_ReadFile] = []
            num_bytes = 0
            for claimed in claim.files:
                read = await self._read(claim, claimed)
                if read is None:
                    continue
                if group and group[0].claimed.principal != claimed.principal:  # Its tokens are another key's.
                    await self._index_group(claim, group)
                    group, num_bytes = [], 0
                group.append(read)
                num_bytes += sum(len(chunk.text) for chunk in read.chunks)
                if num_bytes >= self._timing.max_group_bytes:
                    await self._index_group(claim, group)
                    group, num_bytes = [], 0
            if group:
                await self._index_group(claim, group)
        except BaseException:
            with suppress(Exception):
                await asyncio.shield(self._work.release(claim.run_id))
            raise
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _renew(self, run_id: str) -> None:
        while True:
            await asyncio.sleep(self._timing.lease_s / 3)
            with suppress(Exception):  # The database may be away for a while; the next one may come through.
                await self._work.renew(run_id, self._timing.lease_s)

    async def _read(self, claim: Claim, claimed: ClaimedFile) -> _ReadFile | None:
        """Return a file with its text read, None where it has failed."""
        file, most = claimed.file, self._config.max_file_mib
        failure: tuple[ErrorCode, str]
        try:
            stored = await self._files.find(file.account, file.file_id)
            if stored.num_bytes > most * _MIB:
                raise InvalidFile(_TOO_LARGE.format(most=most))
            content = b"".join([piece async for piece in self._files.read(stored)])
            static = file.chunking["static"]
            sizes = ChunkSizes(
                static["max_chunk_size_tokens"],
                static["chunk_overlap_tokens"],
                self._embedder.passage_tokens(claim.store.embedding_model),
            )
            chunks = await read_chunks(content, file.filename, sizes, self._limits)
            return _ReadFile(claimed, chunks)
        except UnsupportedFile as error:
            failure = ("unsupported_file", str(error))
        except InvalidFile as error:
            failure = ("invalid_file", str(error))
        except FileNotFound:
            failure = ("invalid_file", _GONE)
        except StoreUnavailable:
            failure = ("server_error", _FAILED)
        except ApiError as error:
            failure = ("server_error", error.message)
        except Exception as error:
            log_bug("indexing", error)
            failure = ("server_error", _FAILED)
        await self._work.fail(claim.run_id, claim.store.store_id, file.file_id, *failure)
        return None

    async def _index_group(self, claim: Claim, group: Sequence[_ReadFile]) -> None:
        """Index files together, so that many small ones take few calls of the model."""
        store = claim.store
        principal = group[0].claimed.principal
        request_id = f"vsidx_{secrets.token_hex(8)}"
        trace = RequestTrace(request_id, "POST", time.time(), time.perf_counter(), principal=principal)
        trace.model, trace.status = store.embedding_model, 200
        self._observer.begin()
        try:
            passages = [passage for read in group for passage in read.passages]
            vectors, num_tokens = await self._embedder.embed(
                store.embedding_model,
                passages,
                principal,
                request_id=request_id,
                priority=PRIORITY,
                retries=True,
            )
            trace.usage = Usage(prompt_tokens=num_tokens)
            self._charge(principal, num_tokens)
            rows = await asyncio.to_thread(_rows_of, claim, group, vectors)
            await self._indexes.near.add(store.store_id, rows)
            # What a key that is bound to regions stores is in one of them alone.
            lacking = self._indexes.far_name if principal.regions is None else None
            await self._work.complete(claim.run_id, store.store_id, _sizes_of(group, vectors), lacking)
        except (ApiError, IndexUnavailable) as error:
            trace.status, trace.code = 503, "index_unavailable"
            message = error.message if isinstance(error, ApiError) else _FAILED
            for read in group:
                await self._work.fail(claim.run_id, store.store_id, read.claimed.file.file_id, "server_error", message)
        finally:
            self._observer.end(trace, route=ROUTE, ended=time.perf_counter())

    def _charge(self, principal: Principal, num_tokens: int) -> None:
        """Count tokens against the key's limit; none were reserved, as no request waits."""
        self._gatekeeper.settle(principal, granted=Granted(time.time()), reserved=0, used=num_tokens)

    async def _tidy(self, tidying: Tidying) -> bool:
        """Bring a store's index in line with what the database says counts; return whether that has worked."""
        store_id = tidying.store_id
        try:
            if tidying.is_gone:
                for index in self._indexes.all:
                    await index.drop(store_id)
                await self._work.end_tidying(tidying, None)
            elif tidying.is_dirty:
                for index in self._indexes.all:
                    written = await index.written(store_id)  # Before what counts: a run is noted before it writes.
                    dead = written - set(await self._work.live_files(store_id))
                    await index.tidy(store_id, dead, prune=False)
                await self._copy(store_id)
                await self._work.end_tidying(tidying, PRUNE_AFTER_S)
            else:
                for index in self._indexes.all:
                    await index.tidy(store_id, (), prune=True)
                await self._work.end_tidying(tidying, None)
        except IndexUnavailable:
            return False  # Its lease lapses, and then it is tried again.
        return True

    async def _copy(self, store_id: str) -> None:
        """Copy the entries that one of two indexes lacks from the other."""
        for lacking in (self._indexes.near_name, self._indexes.far_name):
            if lacking and (files := await self._work.files_to_copy(store_id, lacking)):
                await self._indexes.copy(store_id, files, lacking)
                await self._work.note_copied(store_id, files)


def _rows_of(claim: Claim, group: Sequence[_ReadFile], vectors: Vectors) -> list[ChunkRows]:
    coder, rows, at = TermCoder(claim.store.terms_key), [], 0
    for read in group:
        file = read.claimed.file
        for number, chunk in enumerate(read.chunks):
            sealed = file.key.seal(chunk.text.encode(), chunk_label(number))
            own = vectors[at : at + len(chunk.starts)]
            rows.append(ChunkRows(ChunkKey(claim.run_id, file.file_id, number), sealed, coder.code(chunk.text), own))
            at += len(chunk.starts)
    return rows


def _sizes_of(group: Sequence[_ReadFile], vectors: Vectors) -> dict[str, int]:
    """Return how much of a store each file takes: its text and its vectors."""
    vector_bytes = int(np.dtype(np.float32).itemsize * vectors.shape[1])
    return {
        read.claimed.file.file_id: sum(
            len(chunk.text.encode()) + len(chunk.starts) * vector_bytes for chunk in read.chunks
        )
        for read in group
    }


def chunk_label(number: int) -> bytes:
    """Return what the text of a chunk is sealed as."""
    return b"chunk %d" % number
