"""Indexes files that are put into vector stores, after requests, and has the indexes tidied.

Any replica claims work from the database under a lease, account by account in turn. A turn indexes small files
together, or a part of a large one; their tokens are reserved first. Between two parts another account may have its
turn, and the next replica checks whether the file is still wanted.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from deployments.limits.contract import Denied, Gatekeeper
from deployments.models.contract.engine import Usage
from deployments.state.database.queues import Places
from deployments.state.vector_stores.rows import ClaimedFile, ErrorCode
from deployments.state.vector_stores.work import Claim, VectorStoreWork
from deployments.tools.documents.chunks import Chunk
from deployments.tools.search_index.index import IndexUnavailable
from deployments.tools.search_index.pair import IndexPair
from deployments.waiting import finish, wait_at_most
from serve_app.errors.api import ApiError
from serve_app.operations.vector_stores.embedder import Embedder
from serve_app.operations.vector_stores.indexes import IndexWriter, Part
from serve_app.operations.vector_stores.service import VectorStoreService
from serve_app.operations.vector_stores.texts import Texts, Unreadable
from serve_app.telemetry.log import log_bug
from serve_app.telemetry.trace import Observer, RequestTrace

ROUTE = "/v1/vector_stores (indexing)"
PRIORITY = 10
"""Lower than that of interactive requests, as for batches."""
TURN_TOKENS = 8_000
"""About how many tokens of an account are embedded in one turn."""

_MAX_TURNS = 4
_TOO_LITTLE = "A chunk of the file has more tokens than its key may use in a minute. Choose smaller chunks."


@dataclass(frozen=True, slots=True)
class Timing:
    """Intervals in seconds, and how many files are claimed at once.

    Every `look_s` a replica looks for work of others. For `lease_s` a turn begins to read files.
    """

    lease_s: float = 30.0
    look_s: float = 2.0
    max_files: int = 32


class Indexer:
    """The indexing of this process: four turns at once, at most half of them for one account."""

    def __init__(
        self,
        service: VectorStoreService,
        indexes: IndexPair,
        embedder: Embedder,
        gatekeeper: Gatekeeper,
        observer: Observer,
        timing: Timing | None = None,
        region: str = "",
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work = VectorStoreWork(service.stores, region=region)
        self._indexes = IndexWriter(self._work, indexes)
        self._texts = Texts(service.uploads, embedder, service.config)
        self._embedder = embedder
        self._gatekeeper = gatekeeper
        self._observer = observer
        self._timing = timing or Timing()
        self._uptime = uptime
        self._has_news = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._turns: set[asyncio.Task[None]] = set()
        self._held: Counter[str] = Counter()
        self._resting: dict[str, float] = {}
        service.wake = self.wake

    def wake(self) -> None:
        """Look for work now."""
        self._has_news.set()

    def watch(self) -> None:
        """Look for work from now on."""
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stop; another replica continues the current work."""
        tasks = list(self._turns) + ([] if self._watching is None else [self._watching])
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def step(self) -> bool:
        """Do one piece of work; return whether there was any."""
        work = await self._next()
        if work is None:
            return False
        await work
        return True

    async def _watch(self) -> None:
        while True:
            self._has_news.clear()
            try:
                while (work := await self._next()) is not None:
                    self._begin(work)
            except Exception as error:  # The database may be away: leases lapse, and the next look tries again.
                log_bug("indexing", error)
            await wait_at_most(self._has_news, self._timing.look_s)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._turns.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._turns.discard(task)
        self.wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            log_bug("indexing", error)

    async def _next(self) -> Coroutine[Any, Any, None] | None:
        """Claim the next work; None if there is none, or no place for it.

        Indexing comes before tidying that can wait, so that a store which grows is not tidied all the time.
        """
        room = _MAX_TURNS - self._held.total()
        if room == 0:
            return None
        now = self._uptime()
        self._resting = {key_id: until for key_id, until in self._resting.items() if until > now}
        places, lease_s = Places(self._held, room), self._timing.lease_s
        tidying = await self._work.claim_tidying(lease_s, places, only_late=True)
        if tidying is None:
            claim = await self._work.claim(lease_s, self._timing.max_files, places, self._resting)
            if claim is not None:
                return self._hold(claim.store.account, self._take_turn(claim))
            tidying = await self._work.claim_tidying(lease_s, places)
        return None if tidying is None else self._hold(tidying.account, self._indexes.tidy(tidying))

    def _hold(self, account: str, work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """Take a place for work, which is freed when it ends."""
        self._held[account] += 1

        async def leave_after() -> None:
            try:
                await work
            finally:
                self._held -= Counter([account])

        return leave_after()

    async def _take_turn(self, claim: Claim) -> None:
        renewing = asyncio.create_task(self._renew(claim.run_id))
        try:
            parts = await self._parts_of(claim)
            if parts:
                await self._index(claim, parts)
        except asyncio.CancelledError:
            with suppress(Exception):
                await asyncio.shield(self._work.release(claim.run_id))
            raise
        else:  # After an error, anything may have been written: the lease lapses, and the files start again.
            await self._work.release(claim.run_id)
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _renew(self, run_id: str) -> None:
        while True:
            await asyncio.sleep(self._timing.lease_s / 3)
            with suppress(Exception):  # The database may be away for a while; the next one may come through.
                await self._work.renew(run_id, self._timing.lease_s)

    async def _parts_of(self, claim: Claim) -> list[Part]:
        """Return the parts for this turn: as many files as fit, and at least one chunk."""
        room = min(TURN_TOKENS, claim.principal.tokens_per_minute // 4)  # Larger parts waste more of a minute.
        until = time.monotonic() + self._timing.lease_s
        parts: list[Part] = []
        for claimed in claim.files:
            file = claimed.file
            try:
                chunks = await self._texts.read(claim.store, file)
                sizes = self._sizes(claim, chunks, file.num_indexed, room)
            except Unreadable as error:
                await self._fail(claim, [claimed], error.code, error.message)
                continue
            except ApiError as error:
                await self._fail(claim, [claimed], "server_error", error.message)
                continue
            if not sizes:  # Another version has cut its first part differently.
                await self._work.restart(claim.run_id)
                break
            if parts and sum(sizes) > room:
                break
            last = file.num_indexed + len(sizes)
            num_uncounted = sum(sizes[max(0, file.num_counted - file.num_indexed) :])
            parts.append(Part(claimed, chunks, file.num_indexed, last, sum(sizes), num_uncounted))
            room -= sum(sizes)
            if last < len(chunks) or time.monotonic() > until:
                break
        return parts

    def _sizes(self, claim: Claim, chunks: Sequence[Chunk], first: int, room: int) -> list[int]:
        """Return the tokens of the chunks from `first` on that fit, at least of one."""
        sizes: list[int] = []
        for chunk in chunks[first:]:
            size = self._embedder.tokens_of(claim.store.embedding_model, chunk)
            if sizes and size > room:
                break
            sizes.append(size)
            room -= size
        return sizes

    async def _index(self, claim: Claim, parts: Sequence[Part]) -> None:
        """Index parts of files together: many small ones take few calls of the model."""
        store, principal = claim.store, claim.principal
        reserved = sum(part.num_uncounted for part in parts)
        granted = await self._gatekeeper.reserve(principal, reserved)
        if isinstance(granted, Denied):
            await self._postpone(claim, parts, granted)
            return
        request_id = f"vsidx_{secrets.token_hex(8)}"
        trace = RequestTrace(request_id, "POST", time.time(), time.perf_counter(), principal=principal)
        trace.model, trace.status = store.embedding_model, 200
        used = 0
        self._observer.begin()
        try:
            vectors, num_tokens = await self._embedder.embed(
                store.embedding_model,
                [passage for part in parts for passage in part.passages()],
                principal,
                request_id=request_id,
                priority=PRIORITY,
                retries=True,
            )

            async def write() -> None:
                nonlocal used
                await self._indexes.write(claim, parts, vectors)
                for part in parts:
                    if part.is_last:
                        self._texts.forget(part.claimed.file)
                used = round(num_tokens * reserved / sum(part.num_tokens for part in parts))
                trace.usage = Usage(prompt_tokens=used)

            await finish(write())
        except ApiError as error:
            trace.status, trace.code = 503, "index_unavailable"
            await self._fail(claim, [part.claimed for part in parts], "server_error", error.message)
        except IndexUnavailable:
            trace.status, trace.code = 503, "index_unavailable"
            await self._work.restart(claim.run_id)
        finally:
            self._gatekeeper.settle(principal, granted=granted, reserved=reserved, used=used)
            self._observer.end(trace, route=ROUTE, ended=time.perf_counter())

    async def _postpone(self, claim: Claim, parts: Sequence[Part], denied: Denied) -> None:
        """Wait until the key's limit allows the parts, or fail the file if it never will."""
        if denied.retry_after_s is None:
            await self._fail(claim, [parts[0].claimed], "invalid_file", _TOO_LITTLE)
        else:
            self._resting[claim.principal.key_id] = self._uptime() + denied.retry_after_s

    async def _fail(self, claim: Claim, failed: Sequence[ClaimedFile], code: ErrorCode, message: str) -> None:
        for claimed in failed:
            self._texts.forget(claimed.file)
            await self._work.fail(claim.run_id, claim.store.store_id, claimed.file.file_id, code, message)
