"""The search over vector stores: by meaning and by words, fused into one ranking.

Only files that are in a store now are found, even if the index has others. Texts are opened for the results only.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from deployments.state.encryption.sealing import SealBroken
from deployments.state.identity.principal import Principal
from deployments.state.vector_stores.rows import StoredStore, StoredStoreFile
from deployments.tools.search_index.index import IndexUnavailable
from deployments.tools.search_index.pair import IndexPair
from deployments.tools.search_index.ranking import Condition, condition_of, fuse
from deployments.tools.search_index.rows import ChunkKey, Vectors
from deployments.tools.search_index.terms import TermCoder
from serve_app.errors.capacity import Unavailable
from serve_app.operations.vector_stores.embedder import Embedder
from serve_app.operations.vector_stores.indexes import chunk_label
from serve_app.operations.vector_stores.service import VectorStoreService, expired, no_store
from serve_app.schemas.file_filters import RankingOptions

INDEX_AWAY = "The vector store cannot be searched right now. Please retry your request."
_MIN_CANDIDATES = 50
_MAX_KEPT_FILES = 50_000
Candidate = tuple[str, ChunkKey]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The options of a search; `filters` is a condition on files as in requests."""

    max_num_results: int = 10
    filters: Mapping[str, Any] | None = None
    ranking: RankingOptions = field(default_factory=RankingOptions)


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that was found; `score` is above 0 and at most 1, the best."""

    file: StoredStoreFile
    number: int
    score: float
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """The results of a search, the best first, and the tokens that it took."""

    hits: Sequence[Hit]
    num_tokens: int


@dataclass(slots=True)
class _Rankings:
    """The candidates of both halves of a search for one query, with their scores."""

    near: dict[Candidate, float] = field(default_factory=dict)
    matching: dict[Candidate, float] = field(default_factory=dict)


class _Searchable(NamedTuple):
    """What can be found in a store at one revision: files by id, without the unfinished runs."""

    revision: int
    files: dict[str, StoredStoreFile]
    unfinished: Collection[str]


class FileSearch:
    """Searches the vector stores of all accounts."""

    def __init__(self, service: VectorStoreService, indexes: IndexPair, embedder: Embedder) -> None:
        self.service = service
        self.indexes = indexes
        self.embedder = embedder
        self._files: OrderedDict[str, _Searchable] = OrderedDict()

    async def find_stores(self, account: str, store_ids: Sequence[str], param: str | None = None) -> list[StoredStore]:
        """Return stores to be searched; `param` names them in errors.

        Raises:
            NotFound: the account has no such store.
            BadRequest: a store has expired.
        """
        found = await self.service.stores.find_all(account, store_ids)
        for index, store_id in enumerate(store_ids):
            at = None if param is None else f"{param}[{index}]"
            if store_id not in found:
                raise no_store(store_id, at)
            if found[store_id].has_expired:
                raise expired(store_id, at)
        return [found[store_id] for store_id in dict.fromkeys(store_ids)]

    async def search(
        self,
        principal: Principal,
        stores: Sequence[StoredStore],
        queries: Sequence[str],
        options: SearchOptions,
        *,
        request_id: str,
    ) -> Found:
        """Search stores with several queries. Raises Unavailable if the index or the embedding model is away."""
        rankings = [_Rankings() for _ in queries]
        searched = {store.store_id: await self._searched(store, options.filters) for store in stores}
        files = {store_id: one.files for store_id, one in searched.items()}
        num_tokens = 0
        by_model: dict[str, list[StoredStore]] = defaultdict(list)
        for store in stores:
            if files[store.store_id]:
                by_model[store.embedding_model].append(store)
        try:
            for model, some in by_model.items():
                vectors, used = await self.embedder.embed(model, queries, principal, request_id=request_id)
                num_tokens += used
                jobs = [
                    self._ask(store, searched[store.store_id], query, vector, options, ranking)
                    for store in some
                    for query, vector, ranking in zip(queries, vectors, rankings, strict=True)
                ]
                await asyncio.gather(*jobs)
            ranked = _without_neighbours(_rank(rankings, options), files, options.max_num_results)
            hits = await self._open(stores, files, ranked)
        except IndexUnavailable:
            raise Unavailable(INDEX_AWAY) from None
        for store in stores:
            await self.service.stores.touch(store)
        return Found(hits, num_tokens)

    async def content(self, account: str, store_id: str, file_id: str) -> list[str]:
        """Return the chunks of a file's text, in order; none before it is indexed.

        Raises:
            NotFound: there is no such store or file.
            Unavailable: the index is away.
        """
        file = await self.service.find_file(account, store_id, file_id)
        if file.status != "completed":
            return []
        store = (await self.service.stores.find_all(account, [store_id])).get(store_id)
        if store is None:
            raise no_store(store_id)
        try:
            index = self.indexes.with_entries(file.lacking)
            sealed = await index.read_file(store.store_id, store.revision, file.run_id, file.file_id)
        except IndexUnavailable:
            raise Unavailable(INDEX_AWAY) from None
        return [file.key.open(text, chunk_label(number)).decode() for number, text in enumerate(sealed)]

    async def _searched(self, store: StoredStore, filters: Mapping[str, Any] | None) -> _Searchable:
        """Return the files of a store that pass the filters."""
        kept = self._files.get(store.store_id)
        if kept is None or kept.revision != store.revision:
            files = {file.file_id: file for file in await self.service.files.searchable(store)}
            kept = _Searchable(store.revision, files, await self.service.files.unfinished_runs(store))
            self._files[store.store_id] = kept
        self._files.move_to_end(store.store_id)
        while len(self._files) > 1 and sum(len(one.files) for one in self._files.values()) > _MAX_KEPT_FILES:
            self._files.popitem(last=False)
        now = self.service.stores.clock()
        wanted = {file_id: file for file_id, file in kept.files.items() if file.expires_at > now}
        if filters is not None:  # In a thread: many filters over many files would delay other requests.
            wanted = await asyncio.to_thread(_meeting, wanted, condition_of(filters))
        return kept._replace(files=wanted)

    async def _ask(
        self,
        store: StoredStore,
        searched: _Searchable,
        query: str,
        vector: Vectors,
        options: SearchOptions,
        ranking: _Rankings,
    ) -> None:
        """Run both halves of a search for a query in one store."""
        files = searched.files
        among = (files if options.filters is not None else None, searched.unfinished)
        limit = max(_MIN_CANDIDATES, 4 * options.max_num_results)
        place = (store.store_id, store.revision)
        weight_near, weight_matching = _weights(options.ranking)
        terms = TermCoder(store.terms_key).code_query(query)
        for index in self.indexes.all:
            if all(self.indexes.with_entries(file.lacking) is not index for file in files.values()):
                continue
            near, matching = await asyncio.gather(
                index.nearest(*place, vector, limit if weight_near else 0, *among),
                index.matching(*place, terms, limit if weight_matching else 0, *among),
            )
            for key, cosine in near:
                if cosine > 0 and _counts(files, key):
                    ranking.near.setdefault((store.store_id, key), cosine)
            for key, score in matching:
                if _counts(files, key):
                    ranking.matching.setdefault((store.store_id, key), score)

    async def _open(
        self,
        stores: Sequence[StoredStore],
        files: Mapping[str, Mapping[str, StoredStoreFile]],
        ranked: Sequence[tuple[Candidate, float]],
    ) -> list[Hit]:
        texts: dict[Candidate, bytes] = {}
        for store in stores:
            of_store = files[store.store_id]
            for index in self.indexes.all:
                keys = [
                    key
                    for (store_id, key), _ in ranked
                    if store_id == store.store_id and self.indexes.with_entries(of_store[key.file_id].lacking) is index
                ]
                read = await index.read_texts(store.store_id, store.revision, keys)
                texts |= {(store.store_id, key): sealed for key, sealed in read.items()}
        hits = []
        for candidate, score in ranked:
            store_id, key = candidate
            file = files[store_id][key.file_id]
            try:
                text = file.key.open(texts[candidate], chunk_label(key.number)).decode()
            except (KeyError, SealBroken):
                continue  # It left the store while it was searched.
            hits.append(Hit(file, key.number, score, text))
        return hits


def _meeting(files: Mapping[str, StoredStoreFile], condition: Condition) -> dict[str, StoredStoreFile]:
    return {file_id: file for file_id, file in files.items() if condition(file.attributes)}


def _counts(files: Mapping[str, StoredStoreFile], key: ChunkKey) -> bool:
    file = files.get(key.file_id)
    return file is not None and file.run_id == key.run_id


def _weights(ranking: RankingOptions) -> tuple[float, float]:
    if ranking.ranker == "none":
        return 1.0, 0.0
    if ranking.hybrid_search is not None:
        return ranking.hybrid_search.embedding_weight, ranking.hybrid_search.text_weight
    return 1.0, 1.0


def _rank(rankings: Sequence[_Rankings], options: SearchOptions) -> list[tuple[Candidate, float]]:
    """Return the candidates with their score for the query that they match best, best first.

    Of equal ones, the one that matches all queries best comes first.
    """
    weight_near, weight_matching = _weights(options.ranking)
    best: dict[Candidate, float] = {}
    total: dict[Candidate, float] = defaultdict(float)
    for ranking in rankings:
        if options.ranking.ranker == "none":
            scores = list(ranking.near.items())
        else:
            scores = fuse([(weight_near, ranking.near), (weight_matching, ranking.matching)])
        for candidate, score in scores:
            best[candidate] = max(score, best.get(candidate, 0.0))
            total[candidate] += score
    ranked = sorted(best.items(), key=lambda one: (-one[1], -total[one[0]]))
    least = options.ranking.score_threshold or 0.0
    return [(candidate, min(1.0, score)) for candidate, score in ranked if score >= least]


def _without_neighbours(
    ranked: Sequence[tuple[Candidate, float]], files: Mapping[str, Mapping[str, StoredStoreFile]], most: int
) -> list[tuple[Candidate, float]]:
    """Return the best results, with neighbours of better ones only if there are not enough others.

    Overlapping chunks repeat much of their neighbours.
    """
    chosen: dict[Candidate, float] = {}
    others: dict[Candidate, float] = {}
    for (store_id, key), score in ranked:
        overlaps = files[store_id][key.file_id].chunking["static"]["chunk_overlap_tokens"] > 0
        sides = [(store_id, key._replace(number=key.number + step)) for step in (-1, 1)]
        is_repeated = overlaps and any(side in chosen for side in sides)
        (others if is_repeated else chosen)[store_id, key] = score
    best = [*chosen.items(), *others.items()][:most]
    return sorted(best, key=lambda one: -one[1])
