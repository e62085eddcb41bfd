"""/v1/vector_stores with the real client: stores, their files, batches of those; nothing is indexed here."""

from functools import partial

import openai
import pytest

OTHER = "sk-manta-other-0123456789abcdefghijklmnopqrst"
AUTO = {"type": "static", "static": {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 400}}


@pytest.fixture
def stores(world, vector_stores):
    return world.client().vector_stores


async def upload(world, name="a.md", content=b"# A"):
    return (await world.client().files.create(file=(name, content), purpose="assistants")).id


async def test_a_store_is_created_changed_listed_and_deleted(world, stores):
    made = await stores.create(name="mine", metadata={"a": "b"}, expires_after={"anchor": "last_active_at", "days": 7})
    assert made.id.startswith("vs_")
    assert (made.object, made.name, made.status, made.usage_bytes) == ("vector_store", "mine", "completed", 0)
    assert made.file_counts.total == 0
    assert made.expires_at == made.last_active_at + 7 * 86_400
    world.clock.advance(1)
    other = await stores.create()
    assert (other.name, other.expires_at, other.metadata) == ("", None, {})
    changed = await stores.update(made.id, name="ours", metadata=None, expires_after=None)
    assert (changed.name, changed.metadata, changed.expires_after) == ("ours", {}, None)
    assert (await stores.retrieve(made.id)).to_dict() == changed.to_dict()
    assert [one.id async for one in stores.list(limit=1)] == [other.id, made.id]
    assert (await stores.delete(made.id)).deleted
    with pytest.raises(openai.NotFoundError, match="not found"):
        await stores.retrieve(made.id)


async def test_files_are_put_in_described_changed_and_taken_out(world, stores):
    ids = [await upload(world, f"{number}.md") for number in range(3)]
    made = await stores.create(file_ids=ids[:1])
    assert (made.status, made.file_counts.in_progress) == ("in_progress", 1)
    world.clock.advance(1)
    sizes = {"max_chunk_size_tokens": 200, "chunk_overlap_tokens": 100}
    file = await stores.files.create(
        made.id,
        file_id=ids[1],
        attributes={"year": 2024, "draft": False, "by": "me"},
        chunking_strategy={"type": "static", "static": sizes},
    )
    assert (file.id, file.object, file.status, file.last_error) == (ids[1], "vector_store.file", "in_progress", None)
    assert file.vector_store_id == made.id
    assert file.attributes == {"year": 2024, "draft": False, "by": "me"}
    assert file.chunking_strategy.static.max_chunk_size_tokens == 200
    listed = (await stores.files.list(made.id, order="asc")).data
    assert [one.id for one in listed] == ids[:2]
    assert listed[0].chunking_strategy.to_dict() == AUTO
    assert [one.id async for one in stores.files.list(made.id, limit=1)] == [ids[1], ids[0]]
    assert (await stores.files.list(made.id, filter="completed")).data == []
    changed = await stores.files.update(ids[1], vector_store_id=made.id, attributes={"year": 2025})
    assert (
        (await stores.files.retrieve(ids[1], vector_store_id=made.id)).attributes
        == changed.attributes
        == {"year": 2025}
    )
    assert (await stores.files.delete(ids[1], vector_store_id=made.id)).deleted
    with pytest.raises(openai.NotFoundError, match="No file found"):
        await stores.files.retrieve(ids[1], vector_store_id=made.id)
    assert (await world.client().files.retrieve(ids[1])).id == ids[1]
    await world.client().files.delete(ids[0])
    assert (await stores.files.list(made.id)).data == []


async def test_batches_of_files(world, stores):
    ids = [await upload(world, f"{number}.md") for number in range(3)]
    made = await stores.create()
    batch = await stores.file_batches.create(made.id, file_ids=ids[:2], attributes={"a": 1})
    assert batch.id.startswith("vsfb_")
    assert (batch.object, batch.status, batch.file_counts.in_progress) == ("vector_store.files_batch", "in_progress", 2)
    each = await stores.file_batches.create(made.id, files=[{"file_id": ids[2], "attributes": {"b": 2}}])
    (file,) = (await stores.file_batches.list_files(each.id, vector_store_id=made.id)).data
    assert (file.id, file.attributes) == (ids[2], {"b": 2})
    cancelled = await stores.file_batches.cancel(batch.id, vector_store_id=made.id)
    assert (cancelled.status, cancelled.file_counts.cancelled) == ("cancelled", 2)
    assert (await stores.file_batches.retrieve(batch.id, vector_store_id=made.id)).status == "cancelled"
    assert (await stores.retrieve(made.id)).file_counts.to_dict() == {
        "in_progress": 1,
        "completed": 0,
        "cancelled": 2,
        "failed": 0,
        "total": 3,
    }
    with pytest.raises(openai.NotFoundError, match="No file batch"):
        await stores.file_batches.retrieve("vsfb_x", vector_store_id=made.id)


async def test_files_that_are_not_there_are_named(world, stores):
    made, file_id = await stores.create(), await upload(world)
    for asking, param in (
        (stores.create(file_ids=[file_id, "file-x"]), "file_ids[1]"),
        (stores.files.create(made.id, file_id="file-x"), "file_id"),
        (stores.file_batches.create(made.id, files=[{"file_id": "file-x"}]), "files[0].file_id"),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            await asking
        assert caught.value.param == param
    assert len((await stores.list()).data) == 1


async def test_a_store_of_another_account_does_not_exist(world, stores):
    file_id = await upload(world)
    made = await stores.create(file_ids=[file_id])
    batch = await stores.file_batches.create(made.id, file_ids=[file_id])
    world.principal(OTHER, account="acct_2", key_id="key_2")
    theirs = world.client(OTHER).vector_stores
    own = await theirs.create()
    assert [one.id for one in (await theirs.list()).data] == [own.id]
    for asking in (
        theirs.retrieve(made.id),
        theirs.update(made.id, name="x"),
        theirs.delete(made.id),
        theirs.files.list(made.id),
        theirs.files.create(made.id, file_id=file_id),
        theirs.files.create(own.id, file_id=file_id),
        theirs.files.retrieve(file_id, vector_store_id=made.id),
        theirs.files.update(file_id, vector_store_id=made.id, attributes={}),
        theirs.files.delete(file_id, vector_store_id=made.id),
        theirs.file_batches.create(made.id, file_ids=[file_id]),
        theirs.file_batches.retrieve(batch.id, vector_store_id=made.id),
        theirs.file_batches.retrieve(batch.id, vector_store_id=own.id),
        theirs.file_batches.cancel(batch.id, vector_store_id=made.id),
        theirs.file_batches.list_files(batch.id, vector_store_id=made.id),
        theirs.list(after=made.id),
    ):
        with pytest.raises(openai.APIStatusError) as caught:
            await asking
        assert caught.value.status_code == (400 if caught.value.param == "after" else 404)
    assert [one.id for one in (await stores.files.list(made.id)).data] == [file_id]


async def test_an_expired_store_is_shown_and_deleted_and_nothing_else(world, stores):
    file_id = await upload(world)
    made = await stores.create(expires_after={"anchor": "last_active_at", "days": 1})
    world.clock.advance(86_400)
    assert (await stores.retrieve(made.id)).status == "expired"
    for asking in (
        stores.files.create(made.id, file_id=file_id),
        stores.file_batches.create(made.id, file_ids=[file_id]),
        stores.update(made.id, expires_after={"anchor": "last_active_at", "days": 7}),
        stores.update(made.id, expires_after=None),
        stores.update(made.id, name="x"),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            await asking
        assert caught.value.code == "vector_store_expired"
    assert (await stores.retrieve(made.id)).to_dict() == {**made.to_dict(), "status": "expired"}
    await stores.delete(made.id)


async def test_an_account_has_so_many_stores_at_most(stores):
    made = [await stores.create() for _ in range(5)]
    with pytest.raises(openai.RateLimitError) as caught:
        await stores.create()
    assert caught.value.code == "too_many_vector_stores"
    await stores.delete(made[0].id)
    await stores.create()


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("", {"name": 5}, "name"),
        ("", {"metadata": {"a": 5}}, "metadata"),
        ("", {"expires_after": {"anchor": "created_at", "days": 1}}, "expires_after.anchor"),
        ("", {"expires_after": {"anchor": "last_active_at", "days": 366}}, "expires_after.days"),
        ("", {"file_ids": ["f"] * 501}, "file_ids"),
        ("", {"chunking_strategy": {"type": "other"}}, "chunking_strategy.type"),
        ("/vs/files", {}, "file_id"),
        ("/vs/files", {"file_id": "f", "attributes": {"a": None}}, "attributes"),
        ("/vs/files", {"file_id": "f", "attributes": {str(n): n for n in range(17)}}, "attributes"),
        ("/vs/files", {"file_id": "f", "attributes": {"": 1}}, "attributes"),
        ("/vs/files", {"file_id": "f", "attributes": {"a": "x" * 513}}, "attributes"),
        ("/vs/files/f", {}, "attributes"),
        ("/vs/file_batches", {}, "file_ids"),
        ("/vs/file_batches", {"file_ids": ["f"], "files": [{"file_id": "f"}]}, "files"),
        ("/vs/file_batches", {"file_ids": []}, "file_ids"),
        *[
            (
                "/vs/files",
                {
                    "file_id": "f",
                    "chunking_strategy": {
                        "type": "static",
                        "static": {"max_chunk_size_tokens": size, "chunk_overlap_tokens": overlap},
                    },
                },
                f"chunking_strategy.static.{name}",
            )
            for size, overlap, name in (
                (99, 0, "max_chunk_size_tokens"),
                (4097, 0, "max_chunk_size_tokens"),
                (100, 51, "chunk_overlap_tokens"),
                (100, -1, "chunk_overlap_tokens"),
            )
        ],
    ],
)
async def test_malformed_bodies_are_refused(world, vector_stores, path, body, param):
    async with world.http() as http:
        answer = await http.post("/v1/vector_stores" + path, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_lists_are_read_backwards_too(world, stores):
    file_ids = []
    for number in range(5):
        file_ids.append(await upload(world, f"{number}.md"))
    made = []
    for _ in range(5):
        made.append((await stores.create()).id)
        world.clock.advance(1)
    for file_id in file_ids:
        await stores.files.create(made[0], file_id=file_id)
        world.clock.advance(1)
    batch = await stores.file_batches.create(made[1], file_ids=file_ids)
    in_batch = [one.id async for one in stores.file_batches.list_files(batch.id, vector_store_id=made[1], order="asc")]
    for ids, read in (
        (made, stores.list),
        (file_ids, partial(stores.files.list, made[0])),
        (in_batch, partial(stores.file_batches.list_files, batch.id, vector_store_id=made[1])),
    ):
        for order, listed in (("asc", ids), ("desc", ids[::-1])):
            page = await read(order=order, limit=2, before=listed[4])
            assert ([one.id for one in page.data], page.has_more) == (listed[2:4], True)
            page = await read(order=order, limit=2, before=page.data[0].id)
            assert ([one.id for one in page.data], page.has_more) == (listed[:2], False)
            assert (await read(order=order, before=listed[0])).data == []
            page = await read(order=order, after=listed[0], before=listed[2])  # It begins after the first.
            assert [one.id for one in page.data] == listed[1:]
        with pytest.raises(openai.BadRequestError) as caught:
            await read(before="vs_x")
        assert (caught.value.param, caught.value.code) == ("before", "invalid_value")


async def test_lists_are_asked_for_as_they_can_be(world, stores):
    made = await stores.create()
    async with world.http() as http:
        for query in ("filter=done", "limit=101", "order=up", "after=file-x", "before=file-x"):
            answer = await http.get(f"/v1/vector_stores/{made.id}/files?{query}")
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, query.partition("=")[0])


async def test_a_key_needs_the_scope_and_may_keep_something(world, stores):
    file_id, made = await upload(world), await stores.create()
    world.principal(operations=frozenset({"responses"}))
    with pytest.raises(openai.PermissionDeniedError, match="file_search"):
        await world.client().vector_stores.list()
    world.principal(retention="strict")
    strict = world.client().vector_stores
    for asking in (
        strict.create(),
        strict.create(file_ids=[file_id]),
        strict.files.create(made.id, file_id=file_id),
        strict.file_batches.create(made.id, file_ids=[file_id]),
    ):
        with pytest.raises(openai.PermissionDeniedError) as caught:
            await asking
        assert caught.value.code == "retention_policy"
    world.principal()
    assert [one.id for one in (await stores.list()).data] == [made.id]
    assert (await stores.retrieve(made.id)).file_counts.total == 0


async def test_switched_off_there_are_none(world):
    with pytest.raises(openai.NotFoundError, match="not switched on"):
        await world.client().vector_stores.list()
