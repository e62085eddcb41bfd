"""The index over real LanceDB, in a directory and in a bucket of a real S3 server."""

import asyncio

import numpy as np
import pytest

from deployments.state.objects.config import ResolvedObjectStore
from deployments.tools.search_index.index import IndexUnavailable, SearchIndex
from deployments.tools.search_index.rows import ChunkKey, ChunkRows

STORE = "vs_1"


@pytest.fixture(params=["directory", "s3"])
def place(request, tmp_path) -> ResolvedObjectStore:
    if request.param == "directory":
        return ResolvedObjectStore((tmp_path / "objects").as_uri())
    return request.getfixturevalue("bucket")


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def chunk(
    number: int, vectors: list[list[float]], terms: str, file_id: str = "file-a", run_id: str = "r1"
) -> ChunkRows:
    sealed = f"sealed {file_id} {number}".encode()
    return ChunkRows(ChunkKey(run_id, file_id, number), sealed, terms, np.array(vectors, np.float32))


CHUNKS = [
    chunk(0, [[1, 0, 0], [0, 1, 0]], "AA BB"),
    chunk(1, [[0, 0, 1]], "BB CC CC"),
    chunk(0, [[0.9, 0.1, 0]], "AA DD", "file-b"),
]


async def keys(found) -> list[tuple[str, int]]:
    return [(key.file_id, key.number) for key, _ in await found]


async def test_what_was_added_is_found_by_vector_and_by_term(place):
    index = SearchIndex(place)
    await index.add(STORE, CHUNKS)
    near = await index.nearest(STORE, 1, vector(1, 0, 0), 3)
    assert [(key.file_id, key.number) for key, _ in near][:2] == [("file-a", 0), ("file-b", 0)]
    assert near[0][1] == pytest.approx(1.0, abs=1e-5)
    assert await keys(index.matching(STORE, 1, "CC", 5)) == [("file-a", 1)]
    assert set(await keys(index.matching(STORE, 1, "AA DD", 5))) == {("file-a", 0), ("file-b", 0)}
    assert await index.matching(STORE, 1, "EE", 5) == []
    assert await index.matching(STORE, 1, "", 5) == []
    assert await keys(index.nearest(STORE, 1, vector(1, 0, 0), 5, ["file-b"])) == [("file-b", 0)]
    assert await keys(index.matching(STORE, 1, "AA", 5, ["file-b"])) == [("file-b", 0)]
    wanted = ChunkKey("r1", "file-b", 0)
    assert await index.read_texts(STORE, 1, [wanted, ChunkKey("r2", "file-b", 0)]) == {wanted: b"sealed file-b 0"}
    assert await index.read_texts(STORE, 1, []) == {}
    assert await index.read_file(STORE, 1, "r1", "file-a") == [b"sealed file-a 0", b"sealed file-a 1"]


async def test_another_process_sees_a_change_with_the_next_revision_and_after_tidying(place):
    one, two = SearchIndex(place), SearchIndex(place)
    assert await two.nearest(STORE, 0, vector(1, 0, 0), 5) == []
    await one.add(STORE, CHUNKS[:2])
    assert len(await two.nearest(STORE, 1, vector(1, 0, 0), 5)) == 3
    await one.add(STORE, [chunk(0, [[1, 0, 0]], "EE", "file-c", "r2")])
    assert await keys(two.matching(STORE, 2, "EE", 5)) == [("file-c", 0)]
    assert await one.written(STORE) == {("r1", "file-a"), ("r2", "file-c")}
    await one.tidy(STORE, {("r1", "file-a")}, prune=False)
    assert await keys(two.nearest(STORE, 3, vector(1, 0, 0), 5)) == [("file-c", 0)]
    await one.tidy(STORE, (), prune=True)
    assert await keys(two.matching(STORE, 3, "EE", 5)) == [("file-c", 0)]
    await one.drop(STORE)
    assert await two.nearest(STORE, 4, vector(1, 0, 0), 5) == []
    await one.drop(STORE)
    await one.tidy(STORE, {("r1", "file-a")}, prune=False)


async def test_many_vectors_get_an_index_of_their_own_and_are_found_the_same(tmp_path):
    index = SearchIndex(ResolvedObjectStore(tmp_path.as_uri()), min_ann_rows=500)
    random = np.random.default_rng(0)
    vectors = random.standard_normal((600, 1, 16)).astype(np.float32)
    await index.add(STORE, [chunk(n, vectors[n].tolist(), f"T{n}") for n in range(600)])
    await index.tidy(STORE, (), prune=False)
    hits = [(await keys(index.nearest(STORE, 1, vectors[n][0], 1))) == [("file-a", n)] for n in range(0, 600, 60)]
    assert all(hits)


@pytest.mark.parametrize(("min_ann_rows", "is_in_one_file"), [(100, True), (100, False), (1000, True)])
async def test_of_what_is_removed_nothing_is_left_on_the_disk(tmp_path, monkeypatch, min_ann_rows, is_in_one_file):
    """Neither in the data nor in the indexes, though most of what lies beside it stays."""
    monkeypatch.setattr("deployments.tools.search_index.index.PRUNE_AFTER_S", 0.02)
    index = SearchIndex(ResolvedObjectStore(tmp_path.as_uri()), min_ann_rows=min_ann_rows)
    random = np.random.default_rng(0)
    vectors = random.standard_normal((300, 1, 16)).astype(np.float32)
    secret = [0.5, 0.0, -0.5, 0.0, 0.0, 0.5, 0.0, -0.5] + [0.0] * 8  # Of length 1, as the index makes them.
    traces = (np.array(secret, np.float32).tobytes(), b"sealed file-b 0")
    first = [chunk(n, vectors[n].tolist(), f"T{n}") for n in range(200)]
    beside = [chunk(n, vectors[n].tolist(), f"T{n}", "file-c", "r2") for n in range(200, 300)]
    if not is_in_one_file:
        await index.add(STORE, first)
        await index.tidy(STORE, (), prune=False)
        first = []
    await index.add(STORE, [*first, *beside, chunk(0, [secret], "BB", "file-b", "r2")])
    await index.tidy(STORE, (), prune=False)
    assert all(_files_with(tmp_path, trace) for trace in traces)
    await index.tidy(STORE, {("r2", "file-b"), ("r1", "file-never-written")}, prune=False)
    await asyncio.sleep(0.02)
    await index.tidy(STORE, (), prune=True)
    assert [_files_with(tmp_path, trace) for trace in traces] == [[], []]
    assert await index.written(STORE) == {("r1", "file-a"), ("r2", "file-c")}
    assert await index.matching(STORE, 2, "BB", 5) == []
    for number, file_id in ((150, "file-a"), (250, "file-c")):
        assert await keys(index.nearest(STORE, 2, vectors[number][0], 1)) == [(file_id, number)]
        assert await keys(index.matching(STORE, 2, f"T{number}", 5)) == [(file_id, number)]
    assert await index.read_texts(STORE, 2, [beside[50].key]) == {beside[50].key: beside[50].sealed_text}
    table = await index._find(STORE)
    assert await table.count_rows("passage = 0") == 300


def _files_with(folder, trace):
    return [path for path in folder.rglob("*") if path.is_file() and trace in path.read_bytes()]


async def test_an_index_that_cannot_be_read_says_so_and_no_more(tmp_path):
    place = tmp_path / "a-path-nobody-shall-see"
    index = SearchIndex(ResolvedObjectStore(place.as_uri()))
    await index.add(STORE, CHUNKS)
    for path in (place / "vector_stores").rglob("*.lance"):
        if path.is_file():
            path.write_bytes(b"damaged")
    with pytest.raises(IndexUnavailable) as caught:
        await SearchIndex(ResolvedObjectStore(place.as_uri())).nearest(STORE, 9, vector(1, 0, 0), 5)
    assert "nobody" not in str(caught.value)
