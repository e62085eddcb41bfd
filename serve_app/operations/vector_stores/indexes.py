"""Writes the parts of files into the indexes of vector stores, and removes entries that no longer count."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from deployments.state.vector_stores.rows import ClaimedFile
from deployments.state.vector_stores.work import Claim, Tidying, VectorStoreWork
from deployments.tools.documents.chunks import Chunk
from deployments.tools.search_index.index import PRUNE_AFTER_S, IndexUnavailable
from deployments.tools.search_index.pair import IndexPair
from deployments.tools.search_index.rows import ChunkKey, ChunkRows, Vectors
from deployments.tools.search_index.terms import TermCoder


class Part(NamedTuple):
    """The part of a file that a turn indexes: its chunks from `first` to `last`, with about `num_tokens` tokens.

    `num_uncounted` of these have not been charged yet.
    """

    claimed: ClaimedFile
    chunks: Sequence[Chunk]
    first: int
    last: int
    num_tokens: int
    num_uncounted: int

    @property
    def is_last(self) -> bool:
        """Whether the file is complete with this part."""
        return self.last == len(self.chunks)

    def passages(self) -> list[str]:
        """Return the texts that get a vector."""
        return [passage for chunk in self.chunks[self.first : self.last] for passage in chunk.passages()]


class IndexWriter:
    """Writes into the indexes that this process reaches."""

    def __init__(self, work: VectorStoreWork, indexes: IndexPair) -> None:
        self._work = work
        self._indexes = indexes

    async def write(self, claim: Claim, parts: Sequence[Part], vectors: Vectors) -> None:
        """Write parts of files with their vectors into the index, then note it in the database."""
        store, indexes = claim.store, self._indexes
        name = parts[0].claimed.file.indexed_in if parts[0].first else indexes.near_name
        rows = await asyncio.to_thread(_rows_of, claim, parts, vectors)
        await indexes.named(name).add(store.store_id, rows)
        # Files of a key that is bound to regions are in one of them only.
        lacking = indexes.beside(name) if claim.principal.regions is None else None
        whole = {part.claimed.file.file_id: _stored_bytes(part, vectors) for part in parts if part.is_last}
        is_mine = not whole or await self._work.complete(claim.run_id, store.store_id, whole, lacking)
        for part in parts:
            file_id = part.claimed.file.file_id
            if not part.is_last:
                is_mine &= await self._work.note_part(claim.run_id, store.store_id, file_id, part.last, name)
        if not is_mine and not await self._work.has_store(store.store_id):
            for (
                index
            ) in indexes.all:  # Store and index were deleted meanwhile, and the write has created the index again.
                await index.drop(store.store_id)

    async def tidy(self, tidying: Tidying) -> None:
        """Make a store's index consistent with the database."""
        store_id = tidying.store_id
        with suppress(IndexUnavailable):  # Then its lease lapses, and it is tried again.
            if tidying.is_gone:
                for index in self._indexes.all:
                    await index.drop(store_id)
                await self._work.end_tidying(tidying, None)
            elif tidying.is_dirty:
                for index in self._indexes.all:
                    written = await index.written(
                        store_id
                    )  # Read before the live files: a run is noted before it writes.
                    dead = written - set(await self._work.live_files(store_id))
                    await index.tidy(store_id, dead, prune=False)
                await self._copy(store_id)
                await self._work.end_tidying(tidying, PRUNE_AFTER_S)
            else:
                for index in self._indexes.all:
                    await index.tidy(store_id, (), prune=True)
                await self._work.end_tidying(tidying, None)

    async def _copy(self, store_id: str) -> None:
        """Copy the entries that one of two indexes lacks from the other."""
        for lacking in (self._indexes.near_name, self._indexes.far_name):
            if lacking and (files := await self._work.files_to_copy(store_id, lacking)):
                await self._indexes.copy(store_id, files, lacking)
                await self._work.note_copied(store_id, files)


def _rows_of(claim: Claim, parts: Sequence[Part], vectors: Vectors) -> list[ChunkRows]:
    coder, rows, at = TermCoder(claim.store.terms_key), [], 0
    for part in parts:
        file = part.claimed.file
        for number in range(part.first, part.last):
            chunk = part.chunks[number]
            sealed = file.key.seal(chunk.text.encode(), chunk_label(number))
            own = vectors[at : at + len(chunk.starts)]
            rows.append(ChunkRows(ChunkKey(claim.run_id, file.file_id, number), sealed, coder.code(chunk.text), own))
            at += len(chunk.starts)
    return rows


def _stored_bytes(part: Part, vectors: Vectors) -> int:
    """Return the size of a file in a store: its text and its vectors."""
    vector_bytes = int(np.dtype(np.float32).itemsize * vectors.shape[1])
    return sum(len(chunk.text.encode()) + len(chunk.starts) * vector_bytes for chunk in part.chunks)


def chunk_label(number: int) -> bytes:
    """Return the label under which the text of a chunk is sealed."""
    return b"chunk %d" % number
