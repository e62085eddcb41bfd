"""Public reports about fields that coding agents send, and other services refuse."""

import orjson
import pytest

from tests.contract.http.answers import MODEL

HI = [{"role": "user", "content": "Hi"}]
EDITS = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}, {"type": "clear_tool_uses_20250919"}]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": HI, "context_management": [{"type": "compaction", "compact_threshold": 9_000}]}),
        ("/v1/responses", {"input": HI, "context_management": None}),
        ("/v1/messages", {"messages": HI, "max_tokens": 9, "context_management": EDITS}),
        ("/v1/messages/count_tokens", {"messages": HI, "context_management": EDITS}),
    ],
)
async def test_a_wish_to_manage_the_context_is_taken(world, path, body):
    """decolua/9router#1468."""
    async with world.http() as http:
        answer = await http.post(path, json={"model": MODEL, **body})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_a_key_for_the_prompt_cache_is_taken_and_not_sent_on(world, path):
    """anomalyco/opencode#45113."""
    field = "messages" if "chat" in path else "input"
    async with world.http() as http:
        answer = await http.post(path, json={"model": MODEL, field: HI, "prompt_cache_key": "session"})
    assert answer.status_code == 200, answer.text
    assert "prompt_cache_key" not in orjson.loads(world.chat.requests[-1].body)


async def test_marks_for_the_prompt_cache_are_taken_in_chats_and_not_sent_on(world):
    """Agents set them for models that are called like Anthropic's, which may be an alias here."""
    mark = {"cache_control": {"type": "ephemeral"}}
    part = {"type": "text", "text": "Hi", **mark}
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}, **mark}
    turns = [{"role": "system", "content": [part]}, {"role": "user", "content": "Hi", **mark}]
    async with world.http() as http:
        body = {"model": MODEL, "messages": turns, "tools": [tool]}
        answer = await http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert b"cache_control" not in world.chat.requests[-1].body
