"""Content leaves no trace: a marker in every field of every route, then a search in all that the service wrote."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI

from tests.service import ADAPTERS, CANARY, CHAT, EMBED, Service, describe

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

TOKENS = [733, 1201, 347, 911, 1033, 577, 1409]
SCHEMA = {
    "type": "object",
    "title": CANARY,
    "properties": {"a": {"enum": [CANARY]}},
    "required": ["a"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "f", "description": CANARY, "parameters": SCHEMA}}
# The grammar compiler warns of this pattern, and quotes it.
PATTERN = {"type": "object", "properties": {"a": {"type": "string", "pattern": f"^(?!{CANARY})a$"}}}
CHAT_BODY: dict[str, Any] = {
    "model": CHAT,
    "max_tokens": 24,
    "messages": [
        {"role": "system", "content": CANARY, "name": CANARY},
        {"role": "user", "content": [{"type": "text", "text": CANARY}]},
        {
            "role": "assistant",
            "content": CANARY,
            "tool_calls": [
                {"id": CANARY, "type": "function", "function": {"name": "f", "arguments": f'{{"a":"{CANARY}"}}'}}
            ],
        },
        {"role": "tool", "tool_call_id": CANARY, "content": CANARY},
    ],
    "stop": [CANARY],
    "user": CANARY,
    "metadata": {CANARY: CANARY},
    "prompt_cache_key": CANARY,
}


def bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield requests that are answered and requests that are refused, at the door and in the engine."""
    chat = "/v1/chat/completions"
    good = [
        (chat, CHAT_BODY),
        (chat, {**CHAT_BODY, "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}),
        (
            chat,
            {**CHAT_BODY, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
        ),
        (
            chat,
            {**CHAT_BODY, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": PATTERN}}},
        ),
        ("/v1/completions", {"model": CHAT, "prompt": CANARY, "echo": True, "stop": CANARY, "user": CANARY}),
        ("/v1/completions", {"model": CHAT, "prompt": TOKENS}),
        ("/v1/embeddings", {"model": EMBED, "input": [CANARY], "user": CANARY}),
        ("/v1/embeddings", {"model": EMBED, "input": TOKENS}),
    ]
    for path, body in good:
        yield path, body
        if path != "/v1/embeddings":
            yield path, {**body, "stream": True}
        yield path, {**body, CANARY: CANARY}
        yield path, {**body, "model": CANARY}
        yield path, {**body, "user": {CANARY: CANARY}}
    yield chat, {**CHAT_BODY, "messages": [{"role": "user", "content": f"{CANARY} " * 3000}]}
    yield chat, {**CHAT_BODY, "messages": [{"role": CANARY, "content": CANARY}]}
    bomb = {"type": "object", "properties": {CANARY: {"enum": [f"{CANARY}{i}" * 20 for i in range(3000)]}}}
    yield chat, {**CHAT_BODY, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": bomb}}}
    broken = {"type": CANARY, "$ref": CANARY}
    yield (
        chat,
        {**CHAT_BODY, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": broken}}},
    )
    yield "/v1/completions", {"model": CHAT, "prompt": f"{CANARY} " * 3000}
    yield "/v1/completions", {"model": CHAT, "prompt": [*TOKENS, 9_999_999]}
    yield "/v1/embeddings", {"model": EMBED, "input": CANARY, "dimensions": 7}


def use_everything(service: Service, client: OpenAI, key: str) -> list[str]:
    """Send the marker everywhere; return what models answered, which is content as well."""
    headers = {
        "authorization": f"Bearer {key}",
        "user-agent": CANARY,
        "x-client-request-id": CANARY,
        "cookie": CANARY,
        "referer": f"http://{CANARY}/",
    }
    statuses = set()
    with httpx2.Client(base_url=service.url, headers=headers, timeout=120) as http:
        for path, body in bodies():
            statuses.add(http.post(path, json=body).status_code)
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
            http.post(path, content=b'{"' + CANARY.encode())
        http.get(f"/v1/models/{CANARY}")
        http.get(f"/{CANARY}?{CANARY}={CANARY}")
        http.get("/v1/models", headers={"authorization": f"Bearer sk-{CANARY}"})
        with http.stream(
            "POST", "/v1/chat/completions", json={**CHAT_BODY, "max_tokens": 3000, "stream": True}
        ) as gone:
            next(gone.iter_lines())
    assert statuses == {200, 400, 404}
    answers = [
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": CANARY}], max_tokens=40)
        .choices[0]
        .message.content
        for model in (CHAT, f"{CHAT}:{ADAPTERS[0]}")
    ]
    return [answer[:60] for answer in answers if answer]


def written(service: Service) -> Iterator[tuple[str, bytes]]:
    """Yield everything that the service wrote, and what it shows."""
    for path in service.folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield str(path), path.read_bytes()
    for url in service.ingress_urls():
        yield f"{url}/metrics", httpx2.get(f"{url}/metrics", timeout=30).content
    for target in service.metrics_targets():
        yield target, httpx2.get(f"http://{target}/metrics", timeout=30).content
    yield "deployments", json.dumps(service.deployments()).encode()
    for process in service.processes():
        yield f"process {process.pid}", describe(process).encode()


def test_content_leaves_no_trace(service: Service, client: OpenAI, key: str) -> None:
    answers = use_everything(service, client, key)
    assert len(answers) == 2
    token_ids = re.compile(rb"[,\s]+".join(str(token).encode() for token in TOKENS))
    needles = [needle.lower().encode() for needle in (CANARY, *answers)]
    names, found = [], []
    for name, content in written(service):
        names.append(name)
        lowered = content.lower()
        if any(needle in lowered for needle in needles) or token_ids.search(content):
            found.append(name)
    assert found == []
    assert any(name.endswith("manta.db") for name in names)
    assert sum(Path(name).suffix in (".log", ".out", ".err") for name in names) > 20
    assert not list(Path.cwd().glob("core*"))


def test_secrets_are_nowhere_either(service: Service, key: str) -> None:
    secret = key.encode()
    assert [name for name, content in written(service) if secret in content] == []
