"""Stored chats in the console: listed, shown with what was asked and answered, found from the request log, deleted."""

import pytest

from deployments.state.usage.store import UsageStore
from tests.contract.http.answers import MODEL, telling

ASKED = [
    {"role": "system", "content": "Be <brief>."},
    {"role": "user", "content": [{"type": "text", "text": "What is a manta?"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "A ray."},
]


@pytest.fixture
async def chat(world, console, secrets):
    """A stored chat of the holder's account."""
    telling(world)
    return await world.client(secrets["acct_one"]).chat.completions.create(
        model=MODEL, messages=ASKED, store=True, metadata={"topic": "rays"}
    )


async def test_a_chat_shows_what_was_asked_and_answered(world, chat, holder):
    listed = await holder.read("/console/chats")
    assert f'href="/console/chats/{chat.id}"' in listed
    page = await holder.read(f"/console/chats/{chat.id}")
    for text in ("Be &lt;brief&gt;.", "What is a manta?", "calls look", "A ray.", "rays"):
        assert text in page
    assert chat.choices[0].message.content in page
    found = await holder.http.get("/console/chats", params={"id": chat.id})
    assert found.headers["location"] == f"/console/chats/{chat.id}"


async def test_a_request_leads_to_its_chat_and_back(world, chat, holder):
    await UsageStore(world.keys._database).add(world.log.records)
    request_id = "req_" + chat.id.removeprefix("chatcmpl-")
    assert f'href="/console/chats/{chat.id}"' in await holder.read(f"/console/requests/{request_id}")
    assert f'href="/console/requests/{request_id}"' in await holder.read(f"/console/chats/{chat.id}")


async def test_a_chat_is_deleted(chat, holder):
    gone = await holder.send(f"/console/chats/{chat.id}/delete")
    assert gone.headers["location"] == "/console/chats?done=deleted"
    assert "No chats are stored" in await holder.read("/console/chats")
    await holder.read(f"/console/chats/{chat.id}", 404)
    assert (await holder.send(f"/console/chats/{chat.id}/delete")).status_code == 404


async def test_a_chat_of_another_account_is_not_found(chat, visit, secrets):
    other = visit()
    await other.sign_in(secrets["acct_two"])
    await other.read(f"/console/chats/{chat.id}", 404)
    assert (await other.send(f"/console/chats/{chat.id}/delete")).status_code == 404
    assert "No chats are stored" in await other.read("/console/chats")
    await other.read(f"/console/chats?after={chat.id}", 404)


async def test_a_list_that_is_too_large_says_what_to_do(chat, holder, monkeypatch):
    monkeypatch.setattr("deployments.state.responses.queries.MAX_READ_BYTES", 10)
    assert "Open one by its id" in await holder.read("/console/chats", 400)
