"""Vector stores in the console: created, filled, emptied and searched; conversations by their first words."""

import re

import pytest

from deployments.state.database.queries import Page
from serve_app.operations.vector_stores.search import Hit


@pytest.fixture
async def place(holder):
    created = await holder.send("/console/vector-stores", name="handbook", days="7")
    return created.headers["location"]


async def test_a_store_is_created_with_a_name_and_an_expiry(world, holder, place, secrets):
    store = await world.client(secrets["acct_one"]).vector_stores.retrieve(place.rpartition("/")[2])
    assert (store.name, store.expires_after.days) == ("handbook", 7)
    for days in ("0", "x"):
        assert (await holder.send("/console/vector-stores", name="n", days=days)).status_code == 400


async def test_a_file_is_uploaded_into_a_store_and_removed_from_it(world, holder, place, secrets):
    store_id = place.rpartition("/")[2]
    sent = await holder.upload(f"/console/upload/vector-stores/{store_id}", "rules.txt", b"text", purpose="assistants")
    assert sent.headers["location"] == place + "?done=added"
    page = await holder.read(place)
    file_id = re.search(r'name="file" value="(file-\w+)"', page)[1]
    assert "rules.txt" in page
    assert "hx-get" in page.partition('id="store-files"')[2].partition(">")[0]
    await holder.send(place + "/remove", file=file_id)
    assert "It has no files yet" in await holder.read(place)
    assert f'<option value="{file_id}">' in await holder.read(place)
    assert (await holder.send(place + "/add", file=file_id)).status_code == 303
    assert "It has no files yet" not in await holder.read(place)


async def test_a_file_of_another_account_is_not_added(world, holder, place, secrets):
    theirs = await world.client(secrets["acct_two"]).files.create(file=("a.txt", b"a"), purpose="assistants")
    assert (await holder.send(place + "/add", file=theirs.id)).status_code == 404


async def test_a_long_passage_is_folded(world, holder, place, monkeypatch):
    store_id = place.rpartition("/")[2]
    await holder.upload(f"/console/upload/vector-stores/{store_id}", "rules.txt", b"text", purpose="assistants")
    inside, _ = await world.file_search.service.files.list_files("acct_one", store_id, Page())
    found = [Hit(inside[0], 0, 0.5, "word " * 500), Hit(inside[0], 1, 0.4, "short")]

    async def find_hits(*given):
        return found

    monkeypatch.setattr("serve_app.routes.vector_stores.find_hits", find_hits)
    page = (await holder.send(place + "/search", query="word")).text
    assert page.count("<details>") == 1
    assert page.partition("<summary")[2].partition("</summary>")[0].count("word") <= 61


async def test_conversations_show_their_first_words(world, holder, secrets):
    client = world.client(secrets["acct_one"])
    one = await client.conversations.create(items=[{"role": "user", "content": "Where shall we go?"}])
    await client.conversations.items.create(one.id, items=[{"role": "user", "content": "And when?"}])
    await client.conversations.create()
    await client.conversations.create(items=[{"role": "user", "content": "x" * 100_000}])
    page = await holder.read("/console/conversations")
    assert "Where shall we go?" in page
    assert "And when?" not in page
    assert page.count("no message") == 2
    found = await holder.http.get(f"/console/conversations?id={one.id}")
    assert found.headers["location"] == f"/console/conversations/{one.id}"
