"""Content leaves no trace: a marker in every field of every route, then a search in all that the service wrote."""

import dataclasses
import logging

import orjson
import pytest

from deployments.limits.contract import GatekeeperUnavailable
from deployments.models.contract.errors import EngineDied, EngineError
from serve_app.operations.safety.moderation import ModerationConfig
from serve_app.operations.safety.policy import SafetyConfig
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, pieces, said
from tests.twins.engine import Script

CANARY = "kanarienvogel-93f1"
TOOL = {"type": "function", "function": {"name": "f", "description": CANARY, "parameters": {"title": CANARY}}}
CHAT = {
    "model": MODEL,
    "messages": [
        {"role": "system", "content": CANARY, "name": CANARY},
        {"role": "user", "content": [{"type": "text", "text": CANARY}]},
        {
            "role": "assistant",
            "content": CANARY,
            "tool_calls": [{"id": CANARY, "type": "function", "function": {"name": "f", "arguments": CANARY}}],
        },
        {"role": "tool", "tool_call_id": CANARY, "content": CANARY},
    ],
    "stop": [CANARY],
    "user": CANARY,
    "metadata": {CANARY: CANARY},
    "prompt_cache_key": CANARY,
    "tools": [TOOL],
}
COMPLETION = {"model": MODEL, "prompt": CANARY, "stop": CANARY, "user": CANARY}
EMBEDDING = {"model": EMBEDDING_MODEL, "input": [CANARY], "user": CANARY}
CALL = {"type": "function_call", "id": CANARY, "call_id": CANARY, "name": "f", "arguments": CANARY}
RESPONSE = {
    "model": MODEL,
    "input": [
        {"role": "developer", "content": CANARY},
        {"role": "user", "content": [{"type": "input_text", "text": CANARY}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": CANARY}]},
        CALL,
        {"type": "function_call_output", "call_id": CANARY, "output": CANARY},
    ],
    "instructions": CANARY,
    "tools": [{"type": "function", "name": "f", "description": CANARY, "parameters": {"title": CANARY}}],
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object", "title": CANARY}}},
    "metadata": {CANARY: CANARY},
    "user": CANARY,
    "prompt_cache_key": CANARY,
    "safety_identifier": CANARY,
}
MESSAGE = {
    "model": MODEL,
    "max_tokens": 9,
    "system": [{"type": "text", "text": CANARY}],
    "messages": [
        {"role": "user", "content": CANARY},
        {"role": "assistant", "content": [{"type": "tool_use", "id": CANARY, "name": "f", "input": {CANARY: CANARY}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": CANARY, "content": CANARY}]},
    ],
    "tools": [{"name": "f", "description": CANARY, "input_schema": {"title": CANARY}}],
    "stop_sequences": [CANARY],
    "metadata": {"user_id": CANARY},
}
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETION,
    "/v1/embeddings": EMBEDDING,
    "/v1/responses": RESPONSE,
    "/tokenize": {"model": MODEL, "messages": CHAT["messages"], "tools": [TOOL], "chat_template_kwargs": {"a": CANARY}},
    "/v1/tokenize": {"model": MODEL, "prompt": CANARY, "user": CANARY},
    "/rerank": {"model": EMBEDDING_MODEL, "query": CANARY, "documents": [CANARY, {"text": CANARY}], "user": CANARY},
    "/score": {"model": EMBEDDING_MODEL, "text_1": CANARY, "text_2": [CANARY], "instruction": CANARY},
    "/v1/moderations": {"input": [CANARY, CANARY * 1000]},
    "/v1/messages": MESSAGE,
    "/v1/messages/count_tokens": {name: MESSAGE[name] for name in ("model", "system", "messages", "tools")},
}


def spoiled(body):
    """Yield the body in ways that are refused, the marker where the refusal looks."""
    yield {**body, CANARY: CANARY}
    yield {**body, "model": CANARY}
    yield {**body, "temperature": CANARY}
    yield {**body, "messages": [{"role": CANARY, "content": CANARY}]}
    yield {**body, "input": {CANARY: CANARY}, "prompt": {CANARY: CANARY}}
    yield {**body, "response_format": {"type": CANARY}}
    yield {**body, "dimensions": 7}


async def use_stored(http, world):
    """Create, read and destroy what is stored, well and badly."""
    world.chat.script = lambda request: Script(pieces(request, said(CANARY)))
    for background in (False, True):
        made = (await http.post("/v1/responses", json={**RESPONSE, "background": background})).json()["id"]
        again = {"model": MODEL, "input": CANARY, "previous_response_id": made}
        await http.post("/v1/responses", json=again)
        for path in ("", "?stream=true", f"?stream={CANARY}", "/input_items", f"/input_items?after={CANARY}"):
            await http.get(f"/v1/responses/{made}{path}")
        await http.post(f"/v1/responses/{made}/cancel")
        await http.delete(f"/v1/responses/{made}")
    for stream in (False, True):
        await http.post("/v1/chat/completions", json={**CHAT, "store": True, "stream": stream})
    for chat in (await http.get("/v1/chat/completions")).json()["data"]:
        await http.post(f"/v1/chat/completions/{chat['id']}", json={"metadata": {CANARY: CANARY}})
        await http.get(f"/v1/chat/completions/{chat['id']}/messages?after={CANARY}")
    await http.get(f"/v1/chat/completions?metadata[{CANARY}]={CANARY}&after={CANARY}")
    talk = {"items": [{"role": "user", "content": CANARY}], "metadata": {CANARY: CANARY}}
    made = (await http.post("/v1/conversations", json=talk)).json()["id"]
    await http.post(f"/v1/conversations/{made}/items", json={"items": [{"role": CANARY, "content": CANARY}]})
    await http.get(f"/v1/conversations/{made}/items/{CANARY}")
    await http.post("/v1/responses", json={**RESPONSE, "conversation": made})
    await http.post("/v1/responses", json={**RESPONSE, "previous_response_id": CANARY})
    for path in ("input_tokens", "compact"):
        await http.post(f"/v1/responses/{path}", json={"model": MODEL, "input": CANARY})


async def use_everything(world):
    failures = [
        lambda request: Script([ValueError(CANARY)]),
        lambda request: Script([EngineDied(CANARY)]),
        lambda request: Script([b"data: {}\n\n", ValueError(CANARY)]),
        lambda request: Script([b"data: {}\n\n", EngineError(CANARY)]),
        lambda request: Script(pieces(request, said(CANARY))),
    ]
    world.principal(requests_per_minute=1_000_000)
    world.moderation = ModerationConfig(guard_model=MODEL, patterns={"violence": (CANARY,)})
    async with world.http(**{"x-client-request-id": CANARY, "user-agent": CANARY}) as http:
        for path, body in BODIES.items():
            for wanted in (body, *spoiled(body)):
                await http.post(path, json=wanted)
                await http.post(path, json={**wanted, "stream": True})
            await http.post(path, content=b"{" + CANARY.encode())
            for script in failures:
                world.chat.script = world.embeddings.script = script
                await http.post(path, json=body)
                await http.post(path, json={**body, "stream": True})
        await use_stored(http, world)
        await http.get(f"/v1/models/{CANARY}")
        await http.get(f"/{CANARY}?{CANARY}")
        await http.request(CANARY.upper(), "/v1/models")
        await http.get("/v1/models", headers={"authorization": f"Bearer sk-{CANARY}-{CANARY}"})
        return await http.get("/metrics")


@pytest.mark.parametrize("has_policy", [False, True])
async def test_content_leaves_no_trace(world, caplog, capfd, tmp_path, monkeypatch, has_policy):
    folder = tmp_path / "working"  # The database is beside it.
    folder.mkdir()
    monkeypatch.chdir(folder)
    caplog.set_level(logging.DEBUG)
    if has_policy:
        world.safety[MODEL] = SafetyConfig(patterns=("never found",))
    metrics = await use_everything(world)
    assert len(world.log.records) > 80
    ours = [r for r in caplog.records if not r.name.startswith(("httpx", "httpcore", "asyncio"))]
    assert any(r.name == "manta.errors" for r in ours)
    written = [
        *(r.getMessage() for r in ours),
        *(str(r.exc_info) + str(r.args) for r in ours),
        *(orjson.dumps(dataclasses.asdict(r)).decode() for r in world.log.records),
        metrics.text,
        *capfd.readouterr(),
    ]
    found = [text for text in written if CANARY in text.lower()]
    assert not found
    assert not list(folder.iterdir())


async def test_errors_quote_no_message_text(world):
    world.moderation = ModerationConfig(guard_model=MODEL)
    async with world.http() as http:
        for path, body in BODIES.items():
            for error, status in ((ValueError(CANARY), 500), (EngineDied(CANARY), 503)):
                world.chat.script = world.embeddings.script = lambda request, error=error: Script([error])
                answer = await http.post(path, json=body)
                assert answer.status_code == status
                assert CANARY not in answer.text


async def test_gatekeepers_own_words_stay_inside(world, monkeypatch):
    async def fail(secret):
        raise GatekeeperUnavailable(CANARY)

    monkeypatch.setattr(world.gatekeeper, "identify", fail)
    async with world.http() as http:
        assert CANARY not in (await http.get("/v1/models")).text
