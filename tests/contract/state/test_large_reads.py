"""What is too much to read for one prompt is refused before it is loaded: one suite over SQLite and PostgreSQL."""

import pytest

from deployments.state.responses.values import TooMuchToRead
from tests.contract.state.turns import DAY, ME, OTHER, message, save, stores

__all__ = ["stores"]

LARGE, SOME = "word " * 300, "word " * 80


@pytest.fixture(autouse=True)
def _little(monkeypatch):
    for module in ("queries", "conversations"):
        monkeypatch.setattr(f"deployments.state.responses.{module}.MAX_READ_BYTES", 5000)


async def talk(stores, *words, account=ME):
    items = [message(f"msg_{number}", words=text) for number, text in enumerate(words)]
    return await stores.conversations.create(account, {}, items, expires_at=stores.clock() + DAY)


async def test_a_conversation_is_read_up_to_a_size(stores):
    for words in ((LARGE,) * 2, (LARGE,) * 10):
        made = await talk(stores, *words)
        if len(words) == 2:
            assert len(await stores.conversations.all_items(ME, made.id)) == 2
        else:
            with pytest.raises(TooMuchToRead):
                await stores.conversations.all_items(ME, made.id)


async def test_a_page_of_items_ends_at_a_size_and_the_next_goes_on(stores):
    made = await talk(stores, "a", LARGE, LARGE, LARGE * 9, "b", "c")
    seen, pages, has_more = [], [], True
    while has_more:
        after = seen[-1] if seen else None
        items, has_more = await stores.conversations.list_items(ME, made.id, limit=5, is_ascending=True, after=after)
        pages.append(len(items))
        seen += [item["id"] for item in items]
    assert seen == [f"msg_{number}" for number in range(6)]
    assert pages == [3, 1, 2]


async def test_a_chain_is_read_up_to_a_size(stores):
    await save(stores, "a", words=SOME)
    await save(stores, "b", "a", words=SOME)
    assert len(await stores.responses.chain(ME, "resp_b")) == 2
    for name, previous in (("c", "b"), ("d", "c"), ("e", "d")):
        await save(stores, name, previous, words=SOME)
    with pytest.raises(TooMuchToRead):
        await stores.responses.chain(ME, "resp_e")
    assert len(await stores.responses.chain(ME, "resp_b")) == 2


async def test_what_is_referred_to_is_read_up_to_a_size(stores):
    names = [chr(ord("a") + number) for number in range(8)]
    for name in names:
        await save(stores, name, words=SOME)
    kept = [f"msg_{name}_out" for name in names]
    assert set(await stores.responses.find_items(ME, kept[:2])) == set(kept[:2])
    assert await stores.responses.find_items(OTHER, kept) == {}
    for find in (stores.responses.find_items, stores.responses.find_runs):
        with pytest.raises(TooMuchToRead):
            await find(ME, kept)
    await talk(stores, *[LARGE] * 8)
    with pytest.raises(TooMuchToRead):
        await stores.responses.find_items(ME, [f"msg_{number}" for number in range(8)])


async def test_a_response_is_read_once_however_many_of_its_items_are_referred_to(stores):
    await save(stores, "a", words=SOME)
    found = await stores.responses.find_items(ME, ["msg_a_in", "msg_a_out"] * 50)
    assert set(found) == {"msg_a_in", "msg_a_out"}
