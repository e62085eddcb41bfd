"""A vector store in two regions: one database, and an object store with an index in each."""

from dataclasses import replace

import pytest

from deployments.state.database.queries import Page
from deployments.state.objects.config import ResolvedObjectStore
from deployments.tools.search_index.index import IndexUnavailable
from serve_app.errors.capacity import Unavailable
from serve_app.operations.vector_stores.indexing import Indexer
from serve_app.operations.vector_stores.search import FileSearch, SearchOptions
from serve_app.operations.vector_stores.tool import indexes_in
from tests.contract.http.conftest import principal
from tests.contract.http.file_search_calls import NOTES, embed, run, upload


@pytest.fixture
def files_url(postgres_url):
    return postgres_url


@pytest.fixture
def regions(tmp_path, world, vector_stores) -> list[FileSearch]:
    """The search over files as each of two regions has it."""
    places = [ResolvedObjectStore((tmp_path / name).as_uri(), name=name) for name in ("us", "asia")]
    pairs = [replace(near, other=far) for near, far in (places, reversed(places))]
    return [FileSearch(vector_stores.service, indexes_in(pair), vector_stores.embedder) for pair in pairs]


def indexer_of(world, search: FileSearch, indexer: Indexer) -> Indexer:
    return Indexer(search.service, search.indexes, search.embedder, world.gatekeeper, indexer._observer)


async def put_in(world) -> str:
    world.embeddings.script = embed
    ids = [await upload(world, name, content) for name, content in NOTES.items()]
    return (await world.client().vector_stores.create(file_ids=ids)).id


async def found(search: FileSearch, store_id: str, query: str) -> list[tuple[str, str]]:
    asked = principal()
    stores = await search.find_stores(asked.account, [store_id])
    hits = (await search.search(asked, stores, [query], SearchOptions(), request_id="r")).hits
    return [(hit.file.filename, hit.text) for hit in hits]


async def test_store_is_searched_in_both_regions_before_and_after_its_index_is_copied(world, regions, indexer):
    us, asia = regions
    store_id = await put_in(world)
    of_us = indexer_of(world, us, indexer)
    assert await of_us.step()  # Indexed, and not copied yet.
    assert await asia.indexes.near.written(store_id) == set()
    for region in regions:
        assert (await found(region, store_id, "What is the moon made of?"))[0] == ("moon.md", NOTES["moon.md"])
        assert (await found(region, store_id, "zorkmid_7431"))[0] == ("code.py", NOTES["code.py"])
        files, _ = await region.service.files.list_files("acct_1", store_id, Page())
        for file in files:
            assert await region.content("acct_1", store_id, file.file_id) == [NOTES[file.filename]]
    await run(of_us)
    written = await us.indexes.near.written(store_id)
    assert len(written) == 3
    assert await asia.indexes.near.written(store_id) == written
    us.indexes.near.nearest = asia.indexes.far.nearest = away  # What asia finds now, it finds alone.
    assert (await found(asia, store_id, "What is the moon made of?"))[0] == ("moon.md", NOTES["moon.md"])


async def test_search_asks_for_a_retry_where_neither_its_index_has_the_files_nor_the_other_answers(
    world, regions, indexer, monkeypatch
):
    asia = regions[1]
    store_id = await put_in(world)
    of_us, of_asia = (indexer_of(world, search, indexer) for search in regions)
    assert await of_us.step()
    monkeypatch.setattr(asia.indexes.far, "nearest", away)
    with pytest.raises(Unavailable) as refused:
        await found(asia, store_id, "moon")
    assert refused.value.status == 503
    monkeypatch.undo()
    await run(of_asia)  # Whichever region tidies copies what either lacks.
    assert len(await asia.indexes.near.written(store_id)) == 3
    assert (await found(asia, store_id, "moon"))[0][0] == "moon.md"


async def test_file_that_leaves_and_a_store_that_is_deleted_leave_both_indexes(world, regions, indexer):
    us = regions[0]
    store_id = await put_in(world)
    of_us, client = indexer_of(world, us, indexer), world.client().vector_stores
    await run(of_us)
    first = (await client.files.list(store_id)).data[0].id
    await client.files.delete(first, vector_store_id=store_id)
    await run(of_us)
    for region in regions:
        assert len(await region.indexes.near.written(store_id)) == 2
    await client.delete(store_id)
    await run(of_us)
    for region in regions:
        assert await region.indexes.near.written(store_id) == set()


async def test_what_a_bound_key_puts_in_stays_in_its_region(world, regions, indexer):
    us, asia = regions
    secret, unbound = next(iter(world.gatekeeper.principals.items()))
    world.gatekeeper.principals[secret] = replace(unbound, regions=("us",))
    store_id = await put_in(world)
    await run(indexer_of(world, us, indexer))
    assert len(await us.indexes.near.written(store_id)) == 3
    assert await asia.indexes.near.written(store_id) == set()


LARGE = " ".join(f"Whales{number} sing in the deep sea." for number in range(2_000))


async def put_large_in(world) -> tuple[str, str]:
    """Return the ids of a file that takes several turns to index, and of the new store that it is in."""
    world.embeddings.script = embed
    file_id = await upload(world, "large.txt", LARGE)
    return file_id, (await world.client().vector_stores.create(file_ids=[file_id])).id


async def test_file_that_another_region_goes_on_with_is_in_one_index(world, regions, indexer):
    us, asia = regions
    file_id, store_id = await put_large_in(world)
    assert await indexer_of(world, us, indexer).step()
    assert await indexer_of(world, asia, indexer).step()
    ((run_id, _),) = await us.indexes.near.written(store_id)
    assert await asia.indexes.near.written(store_id) == set()
    await run(indexer_of(world, asia, indexer))
    for region in regions:
        assert await region.indexes.near.written(store_id) == {(run_id, file_id)}
        content = await region.content("acct_1", store_id, file_id)
        assert (content[0][:8], content[-1][-30:]) == (LARGE[:8], LARGE[-30:])
        assert len(content) == len({*content}) > 20


async def test_file_whose_index_is_away_begins_anew_in_the_other(world, regions, indexer, monkeypatch):
    us, asia = regions
    _, store_id = await put_large_in(world)
    assert await indexer_of(world, us, indexer).step()
    monkeypatch.setattr(asia.indexes.far, "add", away)
    of_asia = indexer_of(world, asia, indexer)
    while not await asia.indexes.near.written(store_id):
        assert await of_asia.step()
    monkeypatch.undo()
    await run(of_asia)
    assert (await found(asia, store_id, "Whales7"))[0][0] == "large.txt"
    assert len(await us.indexes.near.written(store_id)) == len(await asia.indexes.near.written(store_id)) == 1


async def away(*_: object) -> None:
    raise IndexUnavailable
