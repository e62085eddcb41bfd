"""Vector stores searched by hand: documents indexed into real LanceDB, found again, replaced, forgotten."""

import asyncio
from itertools import pairwise

import openai
import orjson
import pytest

from deployments.models.contract.errors import EngineDied, Overloaded
from serve_app.operations.vector_stores.indexing import Indexer, Timing
from tests.contract.documents.documents import make_docx, make_pdf, make_pptx, make_xlsx
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL
from tests.contract.http.file_search_calls import NOTES, embed, filled_store, found, run, store, tool_of, upload
from tests.twins.engine import Script
from tests.waiting import eventually

__all__ = ["store"]

OTHER = "sk-manta-other-0123456789abcdefghijklmnopqrst"
YEAR = {"type": "eq", "key": "year", "value": 2026}


async def test_files_are_indexed_and_found(world, store):
    assert (store.status, store.file_counts.completed) == ("completed", 3)
    assert store.usage_bytes > sum(map(len, NOTES.values()))
    page = await world.client().vector_stores.search(store.id, query="What is the moon made of?")
    assert page.object == "vector_store.search_results.page"
    first = page.data[0]
    assert (first.filename, first.attributes) == ("moon.md", {})
    assert first.content[0].to_dict() == {"type": "text", "text": NOTES["moon.md"]}
    assert first.score == pytest.approx(1.0)
    assert all(0 < hit.score <= 1 for hit in page.data)
    assert [hit.score for hit in page.data] == sorted((hit.score for hit in page.data), reverse=True)
    assert (await found(world, store, "zorkmid_7431"))[0][0] == "code.py"
    assert {name for name, _ in (await found(world, store, ["whales", "cheese"], max_num_results=2))} == {
        "sea.md",
        "moon.md",
    }
    assert len(await found(world, store, "the", max_num_results=1)) == 1


async def test_many_files_take_a_bounded_number_of_calls_of_the_model(world, vector_stores, indexer):
    await filled_store(world, indexer, {f"{number}.txt": f"Number {number} is written here." for number in range(20)})
    sizes = [len(orjson.loads(request.body)["input"]) for request in world.embeddings.requests]
    assert sizes == [8, 8, 4]
    assert all(request.priority > 0 for request in world.embeddings.requests)


async def test_calls_of_the_model_are_bounded_in_tokens_too(world, vector_stores):
    world.embeddings.script = embed
    texts = ["word " * 80_000, " ", *["word " * 80_000] * 3]
    vectors, num_tokens = await vector_stores.embedder.embed(
        EMBEDDING_MODEL, texts, world.gatekeeper.principals[next(iter(world.gatekeeper.principals))], request_id="x"
    )
    assert [len(orjson.loads(request.body)["input"]) for request in world.embeddings.requests] == [3, 2]
    assert (vectors.shape, num_tokens) == ((5, 64), 15)


async def test_long_documents_become_chunks_whose_passages_fit_the_model(world, vector_stores, indexer):
    paragraphs = [
        f"Paragraph {number} tells of the number {number} and of nothing else at all." for number in range(300)
    ]
    paragraphs[217] = "Zanzibar is an island."
    sizes = {"max_chunk_size_tokens": 400, "chunk_overlap_tokens": 100}
    store = await filled_store(
        world,
        indexer,
        {"long.txt": "\n\n".join(paragraphs)},
        chunking_strategy={"type": "static", "static": sizes},
    )
    (file,) = (await world.client().vector_stores.files.list(store.id)).data
    texts = [part.text async for part in world.client().vector_stores.files.content(file.id, vector_store_id=store.id)]
    assert len(texts) > 10
    inputs = [text for request in world.embeddings.requests for text in orjson.loads(request.body)["input"]]
    assert len(inputs) > len(texts)
    assert max(map(len, inputs)) < 1100  # About what 256 tokens hold.
    words = {"hybrid_search": {"embedding_weight": 0, "text_weight": 1}}
    assert all("Zanzibar" in text for _, text in await found(world, store, "Zanzibar", ranking_options=words))
    found_texts = [text for _, text in await found(world, store, "number", max_num_results=4)]
    places = sorted(texts.index(text) for text in found_texts)
    assert all(after - before > 1 for before, after in pairwise(places))  # No two that overlap.
    assert len({text for _, text in await found(world, store, "number")}) == 10


async def test_documents_of_all_kinds_are_found(world, vector_stores, indexer):
    files = {
        "a.docx": make_docx("The budget is forty crowns."),
        "a.pptx": make_pptx("Roadmap", "We sail in autumn", "Mention the harbour"),
        "a.xlsx": make_xlsx("Herd", ["animal", "count"], ["llama", 17]),
        "a.pdf": make_pdf("The lighthouse keeper resigned."),
        "a.html": "<html><body><p>Gardeners <b>prune</b> roses.</p></body></html>",
        "a.json": '{"volcano": "asleep"}',
        "a.csv": "river,length\nVltava,430\n",
        "a.txt": "Das Käsebrot schmeckt.".encode("utf-16"),
        "a.rs": "fn quicksort(zebras: &mut [u8]) {}",
    }
    store = await filled_store(world, indexer, files)
    assert store.file_counts.completed == 9
    for query, name in (
        ("budget crowns", "a.docx"),
        ("harbour", "a.pptx"),
        ("llama", "a.xlsx"),
        ("lighthouse keeper", "a.pdf"),
        ("prune roses", "a.html"),
        ("volcano", "a.json"),
        ("Vltava", "a.csv"),
        ("Käsebrot", "a.txt"),
        ("quicksort zebras", "a.rs"),
    ):
        assert (await found(world, store, query))[0][0] == name


async def test_files_that_cannot_be_read_fail_with_a_reason_and_the_others_go_on(world, vector_stores, indexer):
    files = {
        "locked.pdf": make_pdf("x", password="hard"),
        "damaged.docx": make_docx("x")[:500],
        "picture.png": b"\x89PNG\r\n\x1a\n\0\xff",
        "empty.txt": " ",
        "good.md": "Good.",
    }
    store = await filled_store(world, indexer, files)
    assert (store.status, store.file_counts.failed, store.file_counts.completed) == ("completed", 4, 1)
    listed = (await world.client().vector_stores.files.list(store.id, filter="failed", order="asc")).data
    told = {one.last_error.code: one.last_error.message for one in listed}
    assert sorted(one.last_error.code for one in listed) == ["invalid_file"] * 3 + ["unsupported_file"]
    assert any("password" in one.last_error.message for one in listed)
    assert "not of a kind that is read" in told["unsupported_file"]
    failed = listed[0]
    content = world.client().vector_stores.files.content(failed.id, vector_store_id=store.id)
    assert [part async for part in content] == []


async def test_filters_choose_files_by_their_attributes(world, store):
    client = world.client().vector_stores
    for file in (await client.files.list(store.id)).data:
        name = (await world.client().files.retrieve(file.id)).filename
        attributes = {"kind": name.rpartition(".")[2], "size": len(NOTES[name])}
        await client.files.update(file.id, vector_store_id=store.id, attributes=attributes)
    markdown = {"type": "eq", "key": "kind", "value": "md"}
    assert {name for name, _ in await found(world, store, "the", filters=markdown)} == {"moon.md", "sea.md"}
    small = {"type": "lt", "key": "size", "value": len(NOTES["sea.md"])}
    both = {"type": "and", "filters": [markdown, small]}
    page = await client.search(store.id, query="the", filters=both)
    assert [(hit.filename, hit.attributes["kind"]) for hit in page.data] == [("moon.md", "md")]
    assert await found(world, store, "the", filters={"type": "eq", "key": "kind", "value": "exe"}) == []


async def test_filters_may_name_many_values_and_be_many(world, store):
    client = world.client().vector_stores
    listed = (await client.files.list(store.id)).data
    for number, file in enumerate(listed):
        await client.files.update(
            file.id, vector_store_id=store.id, attributes={"number": 500 * number, "odd": number == 1}
        )
    numbers = [number for number in range(1001) if number != 500]
    ids = {file.id for file in listed}
    for filters, among in (
        ({"type": "in", "key": "number", "value": numbers}, {listed[0].id, listed[2].id}),
        ({"type": "nin", "key": "number", "value": numbers}, {listed[1].id}),
        ({"type": "in", "key": "number", "value": [True, "0", "500"]}, set()),
        ({"type": "in", "key": "odd", "value": [True, 0]}, {listed[1].id}),
        ({"type": "nin", "key": "nothing", "value": numbers}, ids),
        (
            {"type": "or", "filters": [{"type": "eq", "key": "number", "value": number} for number in range(255)]},
            {listed[0].id},
        ),
    ):
        page = await client.search(store.id, query="moon whales", filters=filters)
        assert {hit.file_id for hit in page.data} == among


async def test_ranking_options_are_honoured(world, store):
    by_meaning = await world.client().vector_stores.search(
        store.id, query=NOTES["moon.md"], ranking_options={"ranker": "none", "score_threshold": 0.95}
    )
    assert [(hit.filename, round(hit.score, 4)) for hit in by_meaning.data] == [("moon.md", 1.0)]
    words = {"embedding_weight": 0, "text_weight": 1}
    assert await found(world, store, "whale", ranking_options={"hybrid_search": words}) == [("sea.md", NOTES["sea.md"])]
    assert await found(world, store, "nowhere", ranking_options={"hybrid_search": words}) == []
    strict = await world.client().vector_stores.search(
        store.id, query="whales", ranking_options={"score_threshold": 0.99}
    )
    assert [hit.filename for hit in strict.data] == ["sea.md"]


@pytest.mark.parametrize("ranker", ["auto", "none"])
async def test_a_score_is_that_for_the_query_that_a_passage_suits_best(world, store, ranker):
    client, alone = world.client().vector_stores, {}
    queries = [NOTES["sea.md"], NOTES["moon.md"], "moon cheese"]
    for query in queries:
        for hit in (await client.search(store.id, query=query, ranking_options={"ranker": ranker})).data:
            alone[hit.filename] = max(hit.score, alone.get(hit.filename, 0.0))
    page = await client.search(store.id, query=queries, ranking_options={"ranker": ranker})
    assert {hit.filename: hit.score for hit in page.data} == pytest.approx(alone)
    page = await client.search(store.id, query=queries, ranking_options={"ranker": ranker, "score_threshold": 0.9})
    assert {hit.filename for hit in page.data} == {"moon.md", "sea.md"}


async def test_of_passages_that_suit_a_query_alike_the_one_that_suits_more_queries_comes_first(world, store):
    queries = [NOTES["sea.md"], NOTES["moon.md"], "moon cheese"]
    assert [name for name, _ in await found(world, store, queries)][:2] == ["moon.md", "sea.md"]


async def test_a_file_that_leaves_is_found_no_more(world, store, indexer):
    client = world.client()
    ids = {
        (await client.files.retrieve(one.id)).filename: one.id
        for one in (await client.vector_stores.files.list(store.id)).data
    }
    await client.vector_stores.files.delete(ids["moon.md"], vector_store_id=store.id)
    await client.files.delete(ids["sea.md"])
    assert {name for name, _ in await found(world, store, "moon whales")} == {"code.py"}
    index = world.file_search.indexes.near
    assert len(await index.written(store.id)) == 3
    again = await upload(world, "again.md", NOTES["moon.md"])
    await client.vector_stores.files.create(store.id, file_id=again)
    await run(indexer)
    assert (await found(world, store, "moon"))[0][0] == "again.md"
    assert {file_id for _, file_id in await index.written(store.id)} == {ids["code.py"], again}
    await client.vector_stores.delete(store.id)
    await run(indexer)
    assert await index.written(store.id) == set()


async def test_a_file_that_is_deleted_leaves_every_store(world, store, indexer):
    client, index = world.client(), world.file_search.indexes.near
    ids = [one.id for one in (await client.vector_stores.files.list(store.id)).data]
    other = await client.vector_stores.create(file_ids=ids)
    await run(indexer)
    assert [len(await index.written(one.id)) for one in (store, other)] == [3, 3]
    await client.files.delete(ids[0])
    for one in (store, other):
        assert len((await client.vector_stores.files.list(one.id)).data) == 2
        assert ids[0] not in {hit.file_id for hit in (await client.vector_stores.search(one.id, query="moon sea")).data}
    await run(indexer)
    assert [{file_id for _, file_id in await index.written(one.id)} for one in (store, other)] == [set(ids[1:])] * 2


async def test_an_expired_store_is_searched_no_more_and_its_index_is_emptied(world, store, indexer):
    client = world.client().vector_stores
    await client.update(store.id, expires_after={"anchor": "last_active_at", "days": 1})
    world.clock.advance(86_399)
    assert await found(world, store, "moon")  # This is a use, from which the day counts again.
    world.clock.advance(86_399)
    assert (await client.retrieve(store.id)).status == "completed"
    world.clock.advance(1)
    with pytest.raises(openai.BadRequestError) as caught:
        await client.search(store.id, query="moon")
    assert caught.value.code == "vector_store_expired"
    stores = world.file_search.service.stores
    assert await stores.sweep() == 1
    await run(indexer)
    assert await world.file_search.indexes.near.written(store.id) == set()
    assert (await client.retrieve(store.id)).file_counts.total == 0


async def test_indexing_again_replaces_what_was_there(world, store, indexer):
    client = world.client().vector_stores
    for file in (await client.files.list(store.id)).data:
        await client.files.create(store.id, file_id=file.id, attributes={"again": True})
    await run(indexer)
    assert len(await world.file_search.indexes.near.written(store.id)) == 3
    page = await client.search(store.id, query="moon whales")
    assert len(page.data) == len({hit.file_id for hit in page.data}) == 3
    assert all(hit.attributes == {"again": True} for hit in page.data)


async def test_another_replica_goes_on_where_one_has_died(world, vector_stores, indexer):
    world.embeddings.script = embed
    file_id = await upload(world, "moon.md", NOTES["moon.md"])
    store = await world.client().vector_stores.create(file_ids=[file_id])
    hold = asyncio.Event()
    world.embeddings.script = lambda request: Script([hold])
    dying = asyncio.create_task(indexer.step())
    await eventually(lambda: world.embeddings.requests, 30)
    search = world.file_search
    heir = Indexer(search.service, search.indexes, search.embedder, world.gatekeeper, indexer._observer)
    assert not await heir.step()
    world.embeddings.script = embed
    world.clock.advance(Timing().lease_s + 1)
    assert await heir.step()
    assert (await world.client().vector_stores.retrieve(store.id)).status == "completed"
    dying.cancel()
    await asyncio.wait([dying])
    assert (await found(world, store, "moon"))[0][0] == "moon.md"


async def test_what_watches_indexes_by_itself_and_lets_go_when_it_closes(world, vector_stores, indexer):
    world.embeddings.script = embed
    indexer.watch()
    file_id = await upload(world, "moon.md", NOTES["moon.md"])
    store = await world.client().vector_stores.create(file_ids=[file_id])
    async with asyncio.timeout(60):
        while (await world.client().vector_stores.retrieve(store.id)).status != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    hold = asyncio.Event()
    world.embeddings.script = lambda request: Script([hold])
    await world.client().vector_stores.files.create(store.id, file_id=file_id)
    num_before = len(world.embeddings.requests)
    await eventually(lambda: len(world.embeddings.requests) > num_before, 30)
    await indexer.close()
    world.embeddings.script = embed
    await run(indexer)
    assert (await world.client().vector_stores.retrieve(store.id)).status == "completed"


async def test_a_model_that_fails_fails_the_file_and_a_busy_one_is_waited_for(world, vector_stores, indexer):
    indexer._embedder._retry_s = 0.01
    busy = iter([Overloaded(1.0), Overloaded(1.0)])

    def play(request):
        error = next(busy, None)
        return embed(request) if error is None else Script([error], usage=None)

    file_id = await upload(world, "moon.md", NOTES["moon.md"])
    world.embeddings.script = play
    client = world.client().vector_stores
    store = await client.create(file_ids=[file_id])
    await run(indexer)
    assert (await client.files.retrieve(file_id, vector_store_id=store.id)).status == "completed"
    world.embeddings.script = lambda request: Script([EngineDied("gone")], usage=None)
    with pytest.raises(openai.APIStatusError) as caught:
        await client.search(store.id, query="moon")
    assert caught.value.status_code == 503


async def test_tokens_are_counted_and_nothing_of_the_content_is_logged(world, vector_stores, indexer, caplog):
    store = await filled_store(world, indexer, {"Kanarienvogel.md": "Kanarienvogel sings."})
    (record,) = [record for record in world.log.records if "indexing" in record.route]
    assert (record.model, record.prompt_tokens, record.key_id, record.status) == (EMBEDDING_MODEL, 3, "key_1", 200)
    await found(world, store, "Kanarienvogel")
    searched = world.log.records[-1]
    assert (searched.model, searched.prompt_tokens) == (EMBEDDING_MODEL, 3)
    assert "Kanarienvogel" not in caplog.text
    assert "Kanarienvogel" not in str(world.log.records)


async def test_nothing_of_a_file_lies_in_the_clear(world, vector_stores, indexer, file_store, tmp_path):
    store = await filled_store(
        world,
        indexer,
        {"Kanarienvogel.md": "Kanarienvogel sings."},
        name="Kanarienvogel",
        metadata={"Kanarienvogel": "a"},
    )
    assert (await found(world, store, "Kanarienvogel"))[0][0] == "Kanarienvogel.md"
    await file_store._database.close()
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("vector_stores" in str(path) for path in paths)
    for path in paths:
        assert b"kanarienvogel" not in path.read_bytes().lower(), path


async def test_a_store_of_another_account_is_not_searched(world, store):
    world.principal(OTHER, account="acct_2", key_id="key_2")
    theirs = world.client(OTHER)
    (file, *_) = (await world.client().vector_stores.files.list(store.id)).data
    with pytest.raises(openai.NotFoundError):
        await theirs.vector_stores.search(store.id, query="moon")
    with pytest.raises(openai.NotFoundError):
        await theirs.vector_stores.files.content(file.id, vector_store_id=store.id)
    with pytest.raises(openai.NotFoundError) as caught:
        await theirs.responses.create(model=MODEL, input="x", tools=[tool_of(store)])
    assert caught.value.param == "tools[0].vector_store_ids[0]"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "query"),
        ({"query": ""}, "query"),
        ({"query": []}, "query"),
        ({"query": "x", "max_num_results": 51}, "max_num_results"),
        ({"query": "x", "rewrite_query": True}, "rewrite_query"),
        ({"query": "x", "filters": {"type": "is", "key": "a", "value": 1}}, "filters.type"),
        ({"query": "x", "filters": {"type": "in", "key": "a", "value": 1}}, "filters.value"),
        ({"query": "x", "filters": {"type": "eq", "key": "a", "value": None}}, "filters.value"),
        ({"query": "x", "filters": {"type": "in", "key": "a", "value": list(range(1001))}}, "filters.value"),
        ({"query": "x", "filters": {"type": "and", "filters": []}}, "filters.filters"),
        ({"query": "x", "filters": {"type": "or", "filters": [YEAR] * 256}}, "filters"),
        (
            {"query": "x", "filters": {"type": "or", "filters": [{"type": "and", "filters": [YEAR] * 64}] * 64}},
            "filters",
        ),
        ({"query": "x", "ranking_options": {"score_threshold": 1.1}}, "ranking_options.score_threshold"),
        (
            {"query": "x", "ranking_options": {"hybrid_search": {"embedding_weight": 0, "text_weight": 0}}},
            "ranking_options.hybrid_search",
        ),
    ],
)
async def test_malformed_searches_are_refused(world, vector_stores, body, param):
    async with world.http() as http:
        told = await http.post("/v1/vector_stores/vs_1/search", json=body)
    assert (told.status_code, told.json()["error"]["param"]) == (400, param)


async def test_filters_nested_without_end_are_refused(world, vector_stores):
    nested = {"type": "eq", "key": "a", "value": 1}
    for _ in range(9):
        nested = {"type": "and", "filters": [nested]}
    async with world.http() as http:
        told = await http.post("/v1/vector_stores/vs_1/search", json={"query": "x", "filters": nested})
    assert (told.status_code, told.json()["error"]["param"]) == (400, "filters")
