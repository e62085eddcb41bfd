"""Stored chat completions: one suite over SQLite and PostgreSQL."""

import pytest

from deployments.state.database.queries import Page
from deployments.state.encryption.vault import Vault
from deployments.state.responses import queries
from deployments.state.responses.chats import ChatMissing, ChatStore, StoredChat
from deployments.state.responses.values import TooMuchToRead
from tests.contract.state.turns import DAY, ME, OTHER, stores

__all__ = ["stores"]

ASKED = [{"id": "chatcmpl-a-0", "role": "user", "content": "A secret question."}]


def chat(name, model="demo/chat", words="Hi.", **metadata) -> StoredChat:
    completion = {"id": f"chatcmpl-{name}", "model": model, "choices": [{"message": {"content": words}}]}
    return StoredChat(completion, metadata, ASKED)


@pytest.fixture
def chats(stores) -> ChatStore:
    return ChatStore(stores.database, Vault(stores.database, b"m" * 32), stores.clock)


@pytest.fixture
def save(chats, stores):
    async def save(*args, account=ME, **more):
        await chats.save(account, chat(*args, **more), expires_at=stores.clock() + DAY)
        stores.clock.advance(1)

    return save


async def ids(chats, page=None, account=ME, **wanted):
    found, has_more = await chats.list_chats(account, page or Page(is_ascending=True), **wanted)
    return "".join(one.id.removeprefix("chatcmpl-") for one in found), has_more


async def rows(stores, table):
    async with stores.database.read() as connection:
        return (await connection.exec_driver_sql(f"SELECT * FROM {table}")).mappings().all()


async def test_a_chat_is_found_changed_and_destroyed_by_its_account_alone(chats, stores, save):
    await save("a", words="A secret answer.", topic="secrets")
    found = await chats.load(ME, "chatcmpl-a")
    assert (found.completion, found.metadata) == (chat("a", words="A secret answer.").completion, {"topic": "secrets"})
    assert await chats.load_messages(ME, "chatcmpl-a") == ASKED
    for account, name in ((OTHER, "chatcmpl-a"), (ME, "chatcmpl-b"), (ME, "chat\0cmpl\ud800")):
        assert await chats.load(account, name) is None
        assert await chats.load_messages(account, name) is None
        assert await chats.update(account, name, {"a": "b"}) is None
        assert not await chats.delete(account, name)
    assert (await chats.update(ME, "chatcmpl-a", {"c": "d"})).metadata == {"c": "d"}
    assert (await chats.load(ME, "chatcmpl-a")).metadata == {"c": "d"}
    assert await chats.delete(ME, "chatcmpl-a")
    assert not await rows(stores, "chat_completions")
    assert not await rows(stores, "chat_completion_pairs")


async def test_nothing_of_its_content_can_be_read_in_the_database(stores, save):
    await save("a", words="A secret answer.", topic="secrets")
    for table in ("chat_completions", "chat_completion_pairs"):
        (row,) = await rows(stores, table)
        shown = repr({name: bytes(value) if isinstance(value, memoryview) else value for name, value in row.items()})
        assert "secret" not in shown
        assert "topic" not in shown


async def test_lists_are_in_pages_narrowed_by_model_and_metadata(chats, save):
    await save("a", topic="x", user="1")
    await save("b", "other", topic="x")
    await save("c", topic="y", user="1")
    await save("d", topic="x", user="1")
    await save("e", account=OTHER, topic="x")
    assert await ids(chats) == ("abcd", False)
    assert await ids(chats, Page(2)) == ("dc", True)
    assert await ids(chats, Page(2, after="chatcmpl-c")) == ("ba", False)
    assert await ids(chats, model="other") == ("b", False)
    assert await ids(chats, metadata={"topic": "x"}) == ("abd", False)
    assert await ids(chats, metadata={"topic": "x", "user": "1"}) == ("ad", False)
    assert await ids(chats, metadata={"topic": "x", "user": "1"}, model="other") == ("", False)
    assert await ids(chats, metadata={"x": "topic"}) == ("", False)
    assert await ids(chats, Page(1, is_ascending=True, after="chatcmpl-a"), metadata={"user": "1"}) == ("c", True)
    await chats.update(ME, "chatcmpl-d", {"topic": "z"})
    assert await ids(chats, metadata={"topic": "x"}) == ("ab", False)
    assert await ids(chats, metadata={"topic": "z"}) == ("d", False)
    assert await ids(chats, account=OTHER, metadata={"topic": "x"}) == ("e", False)
    for after in ("chatcmpl-e", "chatcmpl-none"):
        with pytest.raises(ChatMissing):
            await ids(chats, Page(after=after))


async def test_a_page_is_bounded(chats, save, monkeypatch):
    for name in "abc":
        await save(name, words="x" * 2000)
    monkeypatch.setattr(queries, "MAX_READ_BYTES", 5000)
    assert await ids(chats, Page(2, is_ascending=True)) == ("ab", True)
    with pytest.raises(TooMuchToRead):
        await ids(chats)


async def test_another_try_of_a_request_takes_the_place_of_the_first(chats, stores, save):
    await save("a", words="One.", topic="x", user="1")
    await save("a", words="Two.", topic="x")
    assert (await chats.load(ME, "chatcmpl-a")).completion["choices"][0]["message"]["content"] == "Two."
    assert len(await rows(stores, "chat_completion_pairs")) == 1


async def test_what_has_expired_is_hidden_and_then_deleted(chats, stores, save):
    await save("a", topic="x")
    stores.clock.advance(DAY - 10)
    await save("b", topic="x")
    stores.clock.advance(20)
    assert await ids(chats) == ("b", False)
    assert await chats.load(ME, "chatcmpl-a") is None
    assert not await chats.delete(ME, "chatcmpl-a")
    assert await chats.sweep() == 1
    assert [row["completion_id"] for row in await rows(stores, "chat_completion_pairs")] == ["chatcmpl-b"]
