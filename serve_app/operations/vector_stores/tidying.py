"""Tidies the indexes of vector stores: what counts no longer leaves them, and each has what the other has.

`indexing` claims the stores that are due.
"""

from contextlib import suppress

from deployments.state.vector_stores.work import Tidying, VectorStoreWork
from deployments.tools.search_index.index import PRUNE_AFTER_S, IndexUnavailable
from deployments.tools.search_index.pair import IndexPair


class Tidier:
    """Tidies the indexes that this process reaches."""

    def __init__(self, work: VectorStoreWork, indexes: IndexPair) -> None:
        self._work = work
        self._indexes = indexes

    async def tidy(self, tidying: Tidying) -> None:
        """Bring a store's index in line with what the database says counts."""
        store_id = tidying.store_id
        with suppress(IndexUnavailable):  # Then its lease lapses, and it is tried again.
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

    async def _copy(self, store_id: str) -> None:
        """Copy the entries that one of two indexes lacks from the other."""
        for lacking in (self._indexes.near_name, self._indexes.far_name):
            if lacking and (files := await self._work.files_to_copy(store_id, lacking)):
                await self._indexes.copy(store_id, files, lacking)
                await self._work.note_copied(store_id, files)
