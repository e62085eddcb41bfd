"""Stored conversations: one suite over SQLite and PostgreSQL."""

import pytest

from deployments.state.responses.conversations import MAX_FIRST_BYTES
from deployments.state.responses.values import ConversationMissing
from tests.contract.state.turns import DAY, ME, OTHER, begin, message, save, stores, turn

__all__ = ["stores"]


async def test_a_finished_turn_joins_its_conversation(stores):
    until = stores.clock() + DAY
    made = await stores.conversations.create(ME, {}, [message("msg_0")], expires_at=until)
    await save(stores, "a", conversation_id=made.id)
    epoch = await begin(stores, "b")
    await stores.background.finish(ME, turn("b"), epoch, [], conversation_id=made.id)
    await save(stores, "c", conversation_id="conv_gone")
    items = await stores.conversations.all_items(ME, made.id)
    assert [item["id"] for item in items] == ["msg_0", "msg_a_in", "msg_a_out", "msg_b_in", "msg_b_out"]


async def test_conversations_are_kept_changed_and_destroyed(stores):
    until = stores.clock() + DAY
    made = await stores.conversations.create(ME, {"a": "b"}, [], expires_at=until)
    assert made.metadata == {"a": "b"}
    assert await stores.conversations.load(ME, made.id) == made
    assert await stores.conversations.load(OTHER, made.id) is None
    assert await stores.conversations.update(OTHER, made.id, {}) is None
    assert (await stores.conversations.update(ME, made.id, {"c": "d"})).metadata == {"c": "d"}
    assert (await stores.conversations.load(ME, made.id)).metadata == {"c": "d"}
    assert not await stores.conversations.delete(OTHER, made.id)
    assert await stores.conversations.delete(ME, made.id)
    for call in (
        stores.conversations.all_items(ME, made.id),
        stores.conversations.load_item(ME, made.id, "x"),
        stores.conversations.delete_item(ME, made.id, "x"),
        stores.conversations.add_items(ME, made.id, [message("m")], expires_at=until),
        stores.conversations.list_items(ME, made.id, limit=1, is_ascending=True, after=None),
    ):
        with pytest.raises(ConversationMissing):
            await call


async def test_the_first_item_of_each_conversation_is_found(stores):
    until = stores.clock() + DAY
    first = await stores.conversations.create(ME, {}, [message("m1", words="One."), message("m2")], expires_at=until)
    empty = await stores.conversations.create(ME, {}, [], expires_at=until)
    large = await stores.conversations.create(
        ME, {}, [message("m3", words="x" * MAX_FIRST_BYTES), message("m4")], expires_at=until
    )
    await stores.conversations.delete_item(ME, first.id, "m1")
    ids = [first.id, empty.id, large.id, "conv_none"]
    assert await stores.conversations.first_items(ME, ids) == {first.id: message("m2")}
    assert await stores.conversations.first_items(OTHER, ids) == {}


async def test_conversation_items_are_listed_in_pages_both_ways(stores):
    until = stores.clock() + DAY
    made = await stores.conversations.create(ME, {}, [message("msg_0")], expires_at=until)
    added = await stores.conversations.add_items(
        ME, made.id, [message("msg_1"), message("msg_0", words="Again.")], expires_at=until
    )
    assert added[0]["id"] == "msg_1"
    assert added[1]["id"] not in ("msg_0", "msg_1")  # A taken id is replaced.
    names = ["msg_0", "msg_1", added[1]["id"]]

    async def page(limit, is_ascending, after=None):
        items, has_more = await stores.conversations.list_items(
            ME, made.id, limit=limit, is_ascending=is_ascending, after=after
        )
        return [item["id"] for item in items], has_more

    assert await page(2, True) == (names[:2], True)
    assert await page(2, True, names[1]) == (names[2:], False)
    assert await page(2, False) == (names[:0:-1], True)
    assert await page(3, False, names[2]) == (names[1::-1], False)
    with pytest.raises(KeyError):
        await page(1, True, "msg_none")
    assert (await stores.conversations.load_item(ME, made.id, names[2]))["content"][0]["text"] == "Again."
    assert await stores.conversations.delete_item(ME, made.id, "msg_1")
    assert not await stores.conversations.delete_item(ME, made.id, "msg_1")
    assert await stores.conversations.load_item(ME, made.id, "msg_1") is None


async def test_conversations_expire_after_their_last_use(stores):
    made = await stores.conversations.create(ME, {}, [message("m")], expires_at=stores.clock() + 100)
    stores.clock.advance(60)
    await stores.conversations.add_items(ME, made.id, [message("n")], expires_at=stores.clock() + 100)
    stores.clock.advance(60)
    assert await stores.conversations.sweep() == 0
    assert await stores.conversations.load(ME, made.id)
    stores.clock.advance(60)
    assert await stores.conversations.load(ME, made.id) is None
    assert await stores.conversations.sweep() == 1
