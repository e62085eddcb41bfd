"""The index of vector stores: a LanceDB table for each, in the directory or the bucket of the object store.

A row is a passage of a chunk. Its text is sealed (`sealed_text`, in the first passage of a chunk) or coded (`terms`).
Its vector is neither, as vectors must be compared: with the embedding model, it reveals roughly what the passage is
about. This module has no keys.

Rows carry the run that wrote them. The database knows which runs count: searches skip rows of other runs, and tidying
removes them.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from deployments.state.objects.config import ResolvedObjectStore
from deployments.tools.search_index.rows import (
    ChunkKey,
    ChunkRows,
    Vectors,
    chunks_condition,
    files_condition,
    key_of,
    searched_condition,
    to_arrow,
)

PRUNE_AFTER_S = 60.0
"""How long replaced data stays readable, for searches that have started on it."""

_FOLDER = "vector_stores"
_MAX_OPEN = 256
_MIN_ANN_ROWS = 5_000
_ROWS_PER_PARTITION = 200
_GOOGLE = {"service_account_key": "google_service_account_key"}


class IndexUnavailable(Exception):
    """The index cannot be read or written; trying again later may help."""


@dataclass(slots=True)
class _OpenTable:
    """An open table, and the store's revision at its last refresh."""

    table: Any
    revision: int


class SearchIndex:
    """The index of every vector store; any number of processes may hold one.

    Every method raises IndexUnavailable if the index cannot be read or written.
    """

    def __init__(self, place: ResolvedObjectStore, min_ann_rows: int = _MIN_ANN_ROWS) -> None:
        self._place = place
        self._min_ann_rows = min_ann_rows
        self._connection: Any = None
        self._open: dict[str, _OpenTable] = {}

    async def add(self, store_id: str, chunks: Sequence[ChunkRows]) -> None:
        """Add chunks."""
        await self._add(store_id, to_arrow(chunks))

    async def copy_files(self, store_id: str, files: Collection[tuple[str, str]], to: "SearchIndex") -> None:
        """Add the rows of files, given as pairs of run id and file id, to another index."""
        async with _translated():
            table = await self._find(store_id)
            rows = None if table is None else await table.query().where(files_condition(files)).to_arrow()
        if rows is not None and rows.num_rows:
            await to._add(store_id, rows)

    async def _add(self, store_id: str, rows: Any) -> None:
        async with _translated():
            connection = await self._connect()
            table = await connection.create_table(store_id, schema=rows.schema, exist_ok=True)
            await self._ensure_terms(table)
            await table.add(rows)
        self._open.pop(store_id, None)

    async def nearest(
        self,
        store_id: str,
        revision: int,
        vector: Vectors,
        limit: int,
        file_ids: Collection[str] | None = None,
        without_runs: Collection[str] = (),
    ) -> list[tuple[ChunkKey, float]]:
        """Return the nearest passages, each by its chunk and with its cosine; a chunk may come several times.

        Searches the files in `file_ids`, or all if None; skips rows of `without_runs`.
        """

        async def ask(table: Any) -> Any:
            query = table.query().nearest_to(vector).distance_type("cosine")
            return await self._select(query, searched_condition(file_ids, without_runs), limit, ["_distance"])

        rows = await self._read(store_id, revision, ask) if limit else []
        return [(key_of(row), 1.0 - row["_distance"]) for row in rows]

    async def matching(
        self,
        store_id: str,
        revision: int,
        terms: str,
        limit: int,
        file_ids: Collection[str] | None = None,
        without_runs: Collection[str] = (),
    ) -> list[tuple[ChunkKey, float]]:
        """Return the chunks with some of the coded words, with their BM25 scores; arguments as for `nearest`."""

        async def ask(table: Any) -> Any:
            query = table.query().nearest_to_text(terms, columns=["terms"])
            return await self._select(query, searched_condition(file_ids, without_runs), limit, ["_score"])

        rows = await self._read(store_id, revision, ask) if terms and limit else []
        return [(key_of(row), row["_score"]) for row in rows]

    async def read_texts(self, store_id: str, revision: int, keys: Collection[ChunkKey]) -> dict[ChunkKey, bytes]:
        """Return the sealed texts of the chunks that exist."""
        if not keys:
            return {}

        async def ask(table: Any) -> Any:
            query = table.query().where(f"passage = 0 AND ({chunks_condition(keys)})")
            return await query.select([*ChunkKey._fields[:2], "chunk", "sealed_text"]).to_arrow()

        return {key_of(row): row["sealed_text"] for row in await self._read(store_id, revision, ask)}

    async def read_file(self, store_id: str, revision: int, run_id: str, file_id: str) -> list[bytes]:
        """Return the sealed texts of a file's chunks, in order."""

        async def ask(table: Any) -> Any:
            query = table.query().where(f"run_id = '{run_id}' AND file_id = '{file_id}' AND passage = 0")
            return await query.select(["chunk", "sealed_text"]).to_arrow()

        rows = await self._read(store_id, revision, ask)
        texts = {row["chunk"]: row["sealed_text"] for row in rows}  # Two copies at once write each row twice.
        return [texts[chunk] for chunk in sorted(texts)]

    async def written(self, store_id: str) -> set[tuple[str, str]]:
        """Return pairs of a run id and the id of a file that the run has written."""

        async def ask(table: Any) -> Any:
            return await table.query().where("passage = 0").select(["run_id", "file_id"]).to_arrow()

        self._open.pop(store_id, None)
        return {(row["run_id"], row["file_id"]) for row in await self._read(store_id, 0, ask)}

    async def tidy(self, store_id: str, dead: Collection[tuple[str, str]], *, prune: bool) -> None:
        """Remove the `dead` files, given as pairs of run id and file id, and update the index.

        With `prune`, data that was replaced longer ago than `PRUNE_AFTER_S` is deleted for good.
        """
        async with _translated():
            table = await self._find(store_id)
            if table is None:
                return
            if dead:
                await _remove(table, files_condition(dead))
            await self._ensure_terms(table)
            await self._ensure_ann(table)
            keep_s = PRUNE_AFTER_S / 2 if prune else 7 * 86_400.0
            await table.optimize(cleanup_older_than=timedelta(seconds=keep_s))
        self._open.pop(store_id, None)

    async def drop(self, store_id: str) -> None:
        """Remove a store's table, if there is one."""
        self._open.pop(store_id, None)
        async with _translated():
            connection = await self._connect()
            await connection.drop_table(store_id, ignore_missing=True)

    async def _ensure_terms(self, table: Any) -> None:
        """Create the full-text index of codes, unless it exists."""
        from lancedb.index import FTS

        if any(index.columns == ["terms"] for index in await table.list_indices()):
            return
        config = FTS(
            with_position=False,
            base_tokenizer="whitespace",
            lower_case=False,
            stem=False,
            remove_stop_words=False,
            ascii_folding=False,
        )
        await table.create_index("terms", config=config)

    async def _ensure_ann(self, table: Any) -> None:
        """Create an index of the vectors, if there are too many to compare them all; it misses 1 or 2 % of results."""
        from lancedb.index import IvfFlat

        num_rows = await table.count_rows()
        if num_rows < self._min_ann_rows:
            return
        if not any(index.columns == ["vector"] for index in await table.list_indices()):
            await table.create_index(
                "vector", config=IvfFlat(distance_type="cosine", num_partitions=max(2, num_rows // _ROWS_PER_PARTITION))
            )

    @staticmethod
    async def _select(query: Any, condition: str | None, limit: int, columns: list[str]) -> Any:
        if condition is not None:
            query = query.where(condition)
        return await query.select(["run_id", "file_id", "chunk", *columns]).limit(limit).to_arrow()

    async def _read(self, store_id: str, revision: int, ask: Any) -> list[dict[str, Any]]:
        """Return the rows that `ask` finds; asks again if the table was tidied meanwhile."""
        for is_last in (False, True):
            opened = self._open.get(store_id)
            try:
                if opened is None or opened.revision != revision:
                    opened = await self._reopen(store_id, revision)
                if opened is None:
                    return []
                rows: list[dict[str, Any]] = (await ask(opened.table)).to_pylist()
                return rows
            except (RuntimeError, OSError, ValueError) as error:
                self._open.pop(store_id, None)
                if is_last:
                    raise IndexUnavailable(f"The index fails: {type(error).__name__}.") from None
        return []

    async def _reopen(self, store_id: str, revision: int) -> _OpenTable | None:
        table = await self._find(store_id)
        if table is None:
            return None
        self._open[store_id] = opened = _OpenTable(table, revision)
        if len(self._open) > _MAX_OPEN:
            del self._open[next(iter(self._open))]
        return opened

    async def _find(self, store_id: str) -> Any:
        """Return the newest version of a store's table; None if there is no table."""
        connection = await self._connect()
        try:
            return await connection.open_table(store_id)
        except ValueError as error:
            if "not found" in str(error):
                return None
            raise

    async def _connect(self) -> Any:
        if self._connection is None:
            import lancedb  # Slow; only loaded where files are searched.

            uri, options = _lance_place(self._place)
            self._connection = await lancedb.connect_async(uri, storage_options=options or None)
        return self._connection


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    """Context manager that translates LanceDB's errors, and drops their text, which holds paths."""
    try:
        yield
    except (RuntimeError, OSError, ValueError) as error:
        raise IndexUnavailable(f"The index fails: {type(error).__name__}.") from None


def _lance_place(place: ResolvedObjectStore) -> tuple[str, dict[str, str]]:
    """Return LanceDB's URI and options for an object store, from those of obstore."""
    uri = f"{place.url.rstrip('/')}/{_FOLDER}"
    if uri.startswith("file://"):
        return uri, {}
    if uri.startswith("gs://"):
        return uri, {_GOOGLE.get(name, name): value for name, value in place.options.items()}
    options = {f"aws_{name}": value for name, value in place.options.items()}
    if place.options.get("endpoint", "").startswith("http://"):
        options["allow_http"] = "true"
    return uri, options


async def _remove(table: Any, condition: str) -> None:
    """Remove rows, and rewrite other rows in the same files.

    Deleting only marks rows, and compaction skips files with at most a tenth of marked rows: vectors of deleted
    documents would stay for ever. A file without other rows is removed. The rows are deleted last, so that a second
    attempt after a failure finds their files through them: the upper half of a row's id is its file.
    """
    found = await table.query().where(condition).with_row_id().select(["run_id"]).to_arrow()
    for fragment in sorted({row_id >> 32 for row_id in found["_rowid"].to_pylist()}):
        beside = f"_rowid >= {fragment << 32} AND _rowid < {(fragment + 1) << 32} AND NOT ({condition})"
        await table.update(where=beside, updates_sql={"passage": "passage"})
    await table.delete(condition)
