"""Large files in vector stores: indexed in parts, between which others have their turn and minds may change."""

import asyncio
from collections import Counter
from dataclasses import replace

import orjson
import pytest

from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.keys import NewKey
from deployments.tools.documents.chunks import split
from serve_app.operations.vector_stores.indexing import TURN_TOKENS, Indexer, Timing
from tests.contract.http.conftest import principal
from tests.contract.http.file_search_calls import embed, found, run, upload
from tests.twins.engine import Script
from tests.waiting import eventually

OTHER = "sk-manta-other-0123456789abcdefghijklmnopqrst"
LARGE = " ".join(f"Whales{number} sing in the deep sea." for number in range(2_000))
CHUNKS = split(LARGE, 800, 400, 800)
NUM_TOKENS = sum(chunk.num_tokens for chunk in CHUNKS)
"""What the model reads of the large file, a token for each that is estimated."""


def embed_all(request) -> Script:
    """Return vectors, and a usage of as many tokens as are estimated."""
    script = embed(request)
    if request.operation != "embeddings":
        return script
    body = orjson.loads(script.steps[0])
    texts = orjson.loads(request.body)["input"]
    body["usage"]["total_tokens"] = sum(chunk.num_tokens for text in texts for chunk in split(text, 5000, 0, 5000))
    return Script([orjson.dumps(body)])


def passages(world) -> list[str]:
    """Return what was embedded since the test began, in order."""
    return [text for one in world.embeddings.requests for text in orjson.loads(one.body)["input"]]


@pytest.fixture
def client(world, vector_stores):
    world.embeddings.script = embed_all
    world.principal(OTHER, account="acct_2", key_id="key_2")
    return world.client()


async def put_in(client, world, content=LARGE, name="large.txt"):
    """Put a file into a store of its own; return both ids."""
    file = await client.files.create(file=(name, content.encode()), purpose="assistants")
    return (await client.vector_stores.create(file_ids=[file.id])).id, file.id


async def status_of(client, store_id: str, file_id: str) -> str:
    return (await client.vector_stores.files.retrieve(file_id, vector_store_id=store_id)).status


async def test_one_line_of_another_account_does_not_wait_for_six_megabytes(world, client, indexer):
    indexer.watch()
    large = await put_in(client, world, "Whales sing in the deep sea. " * 210_000)
    await eventually(lambda: world.embeddings.requests)
    other = world.client(OTHER)
    small = await put_in(other, world, "The moon is made of cheese.")

    async def is_completed() -> bool:
        return await status_of(other, *small) == "completed"

    await eventually(is_completed)
    assert sum(used for _, _, used in world.gatekeeper.settled) < 1_000_000  # Of three million.
    assert await status_of(client, *large) == "in_progress"
    await client.vector_stores.files.delete(large[1], vector_store_id=large[0])
    num_before = len(passages(world))
    await eventually(lambda: not indexer._held.total())
    num_after = len(passages(world))
    await asyncio.sleep(0.2)
    assert len(passages(world)) == num_after < num_before + 500  # Of thirty thousand.


async def test_file_is_indexed_in_parts_each_once_and_found_at_the_end_only(world, client, indexer):
    store_id, file_id = await put_in(client, world)
    store = await client.vector_stores.retrieve(store_id)
    num_steps = 0
    while await status_of(client, store_id, file_id) == "in_progress":
        assert await found(world, store, "whales") == []
        assert await indexer.step()
        num_steps += 1
    assert NUM_TOKENS / TURN_TOKENS <= num_steps <= NUM_TOKENS / TURN_TOKENS * 1.2 + 1
    assert "".join(passages(world)) == "".join(chunk.text for chunk in CHUNKS)
    content = client.vector_stores.files.content(file_id, vector_store_id=store_id)
    assert [part.text async for part in content] == [chunk.text for chunk in CHUNKS]
    assert len(await found(world, store, "whales", max_num_results=50)) == min(50, len(CHUNKS))


async def test_file_that_is_on_its_way_hides_nothing_of_the_others(world, client, indexer):
    store_id, _ = await put_in(client, world, "Whales7", "small.txt")
    await run(indexer)
    store = await client.vector_stores.retrieve(store_id)
    large = await upload(world, "large.txt", LARGE)
    await client.vector_stores.files.create(store_id, file_id=large)
    for _ in range(4):
        await indexer.step()
    assert sum(name == large for _, name in await world.file_search.indexes.near.written(store_id)) == 1
    for options in ({"ranker": "none"}, {}):
        hits = await found(world, store, LARGE[:300] + " Whales7", ranking_options=options)
        assert [name for name, _ in hits] == ["small.txt"]


def heir_of(world, indexer: Indexer) -> Indexer:
    """Return the indexer of another replica."""
    search = world.file_search
    parts = (search.service, search.indexes, search.embedder, world.gatekeeper, indexer._observer)
    return Indexer(*parts, uptime=world.clock)


async def delete_file(client, world, store_id, file_id):
    await client.files.delete(file_id)


async def take_out(client, world, store_id, file_id):
    await client.vector_stores.files.delete(file_id, vector_store_id=store_id)


async def delete_store(client, world, store_id, file_id):
    await client.vector_stores.delete(store_id)


async def revoke_key(client, world, store_id, file_id):
    key_id = next(iter(world.gatekeeper.principals.values())).key_id
    await KeyStore(world.file_search.service.stores.database, b"pepper" * 6).revoke(key_id)


async def cancel_batch(client, world, store_id, file_id):
    (file,) = (await client.vector_stores.files.list(store_id)).data
    batch = await client.vector_stores.file_batches.create(store_id, file_ids=[file.id])
    assert batch.status == "in_progress"
    await world.indexer.step()
    await client.vector_stores.file_batches.cancel(batch.id, vector_store_id=store_id)


@pytest.mark.parametrize("end", [delete_file, take_out, delete_store, revoke_key, cancel_batch])
async def test_what_is_not_wanted_any_more_ends_with_its_part_and_leaves_nothing(world, client, indexer, end):
    keys = KeyStore(world.file_search.service.stores.database, b"pepper" * 6)
    key, _ = await keys.create(NewKey(account="acct_1"))
    (secret, *_) = world.gatekeeper.principals
    world.gatekeeper.principals[secret] = replace(world.gatekeeper.principals[secret], key_id=key.key_id)
    world.indexer = indexer
    store_id, file_id = await put_in(client, world)
    for _ in range(2):
        await indexer.step()
    hold, is_held = asyncio.Event(), len(world.embeddings.requests)
    if end is not cancel_batch:  # In the middle of a part.
        world.embeddings.script = lambda request: Script([hold, *embed_all(request).steps])
        turn = asyncio.create_task(indexer.step())
        await eventually(lambda: len(world.embeddings.requests) > is_held)
        await end(client, world, store_id, file_id)
        if end is delete_store:  # Its index is gone before the part comes.
            await run(heir_of(world, indexer))
        hold.set()
        await turn
    else:
        await end(client, world, store_id, file_id)
    world.embeddings.script = embed_all
    num_before = len(passages(world))
    await run(indexer)
    assert len(passages(world)) <= num_before
    assert await world.file_search.indexes.near.written(store_id) == set()


async def test_no_more_is_embedded_than_the_key_may_and_nobody_else_waits(world, client, indexer):
    (secret, *_) = world.gatekeeper.principals
    world.gatekeeper.principals[secret] = replace(world.gatekeeper.principals[secret], tokens_per_minute=20_000)
    large, other = await put_in(client, world), world.client(OTHER)
    minutes = []
    while await status_of(client, *large) == "in_progress":
        num_before = sum(used for _, _, used in world.gatekeeper.settled)
        await run(indexer)
        minutes.append(sum(used for _, _, used in world.gatekeeper.settled) - num_before)
        if len(minutes) == 1:
            assert await status_of(client, *large) == "in_progress"
            small = await put_in(other, world, "The moon is made of cheese.")
            await run(indexer)
            assert await status_of(other, *small) == "completed"
        world.clock.advance(61)
    assert len(minutes) == -(-NUM_TOKENS // 20_000)
    assert all(15_000 < tokens <= 20_000 for tokens in minutes[:-1])
    used = Counter(key_id for key_id, _, tokens in world.gatekeeper.settled for _ in range(tokens))
    assert used[principal().key_id] == NUM_TOKENS
    assert max(reserved for _, reserved, _ in world.gatekeeper.settled) <= TURN_TOKENS


async def test_chunk_that_the_key_may_never_embed_fails_the_file(world, client, indexer):
    (secret, *_) = world.gatekeeper.principals
    world.gatekeeper.principals[secret] = replace(world.gatekeeper.principals[secret], tokens_per_minute=100)
    store_id, file_id = await put_in(client, world)
    await run(indexer)
    error = (await client.vector_stores.files.retrieve(file_id, vector_store_id=store_id)).last_error
    assert (error.code, "smaller chunks" in error.message) == ("invalid_file", True)
    assert passages(world) == []


async def test_file_of_too_many_tokens_is_refused_before_any_is_embedded(world, client, indexer):
    store_id, file_id = await put_in(client, world, "a-" * 2_500_001)
    await run(indexer)
    file = await client.vector_stores.files.retrieve(file_id, vector_store_id=store_id)
    assert (file.status, file.last_error.code) == ("failed", "invalid_file")
    assert "five million tokens" in file.last_error.message
    assert passages(world) == []


async def test_replica_that_stops_hands_its_file_on_as_far_as_it_is(world, client, indexer):
    store_id, file_id = await put_in(client, world)
    await indexer.step()
    answered = passages(world)
    world.embeddings.script = lambda request: Script([asyncio.Event()])
    indexer.watch()
    await eventually(lambda: len(passages(world)) > len(answered))
    await indexer.close()
    num_asked = len(passages(world))
    world.embeddings.script = embed_all
    await run(heir_of(world, indexer))
    assert await status_of(client, store_id, file_id) == "completed"
    assert "".join(answered + passages(world)[num_asked:]) == "".join(chunk.text for chunk in CHUNKS)


async def test_file_of_a_replica_that_dies_begins_anew_and_is_counted_once(world, client, indexer):
    store_id, file_id = await put_in(client, world)
    for _ in range(2):
        await indexer.step()
    world.embeddings.script = lambda request: Script([asyncio.Event()])
    dying = asyncio.create_task(indexer.step())
    num_before = len(world.embeddings.requests)
    await eventually(lambda: len(world.embeddings.requests) > num_before)
    world.embeddings.script = embed_all
    world.clock.advance(Timing().lease_s + 1)
    heir = heir_of(world, indexer)
    await run(heir)
    assert await status_of(client, store_id, file_id) == "completed"
    dying.cancel()
    await asyncio.wait([dying])
    await run(heir)
    content = client.vector_stores.files.content(file_id, vector_store_id=store_id)
    assert [part.text async for part in content] == [chunk.text for chunk in CHUNKS]
    assert len(await world.file_search.indexes.near.written(store_id)) == 1
    assert sum(used for _, _, used in world.gatekeeper.settled) == NUM_TOKENS
    assert sum(one.prompt_tokens for one in world.log.records if "indexing" in one.route) == NUM_TOKENS


async def test_index_of_another_account_does_not_wait_to_be_tidied(world, client, indexer):
    other = world.client(OTHER)
    small = await put_in(other, world, "The moon is made of cheese.")
    await run(indexer)
    large = await put_in(client, world)
    await indexer.step()
    await other.vector_stores.delete(small[0])
    await indexer.step()
    assert await world.file_search.indexes.near.written(small[0]) == set()
    assert await status_of(client, *large) == "in_progress"
