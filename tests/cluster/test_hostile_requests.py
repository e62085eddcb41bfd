"""Requests made to hurt, against the real engine: a 4xx each, and the engine lives on."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.service import CHAT, EMBED, TRAINED, Service

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

MESSAGES = [{"role": "user", "content": "Hello."}]


@pytest.fixture(scope="module", autouse=True)
def _engines_live_on(service: Service) -> Iterator[None]:
    """The same engine processes run after these tests as before them."""
    before = [service.engine_of(service.running(model)[0]).pid for model in (CHAT, EMBED)]
    yield
    after = [service.engine_of(service.running(model)[0]).pid for model in (CHAT, EMBED)]
    assert after == before


def schema_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "bomb", "schema": schema}}}


def tool_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "tools": [{"type": "function", "function": {"name": "bomb", "parameters": schema}}],
        "tool_choice": "required",
    }


def strict_tool_of(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a tool whose schema is kept even where the model may choose not to call it."""
    function = {"name": "bomb", "strict": True, "parameters": schema}
    return {"tools": [{"type": "function", "function": function}]}


LONG_ENUM = {"type": "object", "properties": {"a": {"enum": [f"{i:04d}" + "xyz" * 100 for i in range(2000)]}}}
MANY_ITEMS = {"type": "array", "minItems": 100_000_000, "items": {"type": "array", "minItems": 100_000_000}}
DEEP: dict[str, Any] = {"type": "object"}
for _ in range(200):
    DEEP = {"type": "object", "properties": {"a": DEEP}, "required": ["a"]}
HOSTILE: dict[str, dict[str, Any]] = {
    "n": {"n": 1_000_000_000},
    "n-of-the-allowed-kind-but-many-tokens": {"n": 128, "max_tokens": 10**12},
    "max-tokens": {"max_tokens": -1},
    "top-logprobs": {"logprobs": True, "top_logprobs": 1_000_000},
    "logit-bias": {"logit_bias": {str(i): 1 for i in range(300_000)}},
    "logit-bias-off-the-vocabulary": {"logit_bias": {"999999999": 1}},
    "logit-bias-negative-token": {"logit_bias": {"-5": 1}},
    "stop": {"stop": ["x" * 1_000_000]},
    "five-stops": {"stop": ["a", "b", "c", "d", "e"]},
    "seed": {"seed": 10**40},
    "cache-salt": {"cache_salt": "x" * 1025},
    "priority": {"priority": -100},
    "chat-template": {"chat_template": "{{ 1 }}"},
    "arguments-of-the-template": {"chat_template_kwargs": {"messages": []}},
    "kv-transfer": {"kv_transfer_params": {"do_remote_prefill": True}},
    "bad-words": {"bad_words": ["x"] * 400_000},
    "token-lists": {"stop_token_ids": [1] * 1_000_000, "allowed_token_ids": [1] * 1_000_000},
    "token-off-the-vocabulary": {"allowed_token_ids": [999_999_999]},
    "least-length": {"min_tokens": 2**31 - 1},
    "repetition-penalty": {"repetition_penalty": 1e-300},
    "regex-that-explodes": {"structured_outputs": {"regex": "(a*)*b"}},
    "grammar-that-explodes": {"structured_outputs": {"grammar": 'root ::= root root | "a"'}},
    "regex-that-is-none": {"guided_regex": "(a"},
    "image": {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest/meta-data"}}],
            }
        ]
    },
    "enum": schema_of(LONG_ENUM),
    "items": schema_of(MANY_ITEMS),
    "deep": schema_of(DEEP),
    "tool-enum": tool_of(LONG_ENUM),
    "tool-items": tool_of(MANY_ITEMS),
    "strict-tool-enum": strict_tool_of({**LONG_ENUM, "required": ["a"], "additionalProperties": False}),
    "strict-tool-items": strict_tool_of(
        {"type": "object", "properties": {"a": MANY_ITEMS}, "required": ["a"], "additionalProperties": False}
    ),
    "dangling-reference": schema_of({"$ref": "#/$defs/none"}),
}


def shape_of(answer: httpx2.Response) -> set[str]:
    return set(answer.json()["error"])


@pytest.mark.parametrize("fields", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_parameters_get_a_refusal(http: httpx2.Client, fields: dict[str, Any]) -> None:
    for stream in (False, True):
        started = time.monotonic()
        answer = http.post(
            "/v1/chat/completions",
            json={"model": CHAT, "messages": MESSAGES, "max_tokens": 4, "stream": stream, **fields},
        )
        assert 400 <= answer.status_code < 500, answer.text[:500]
        assert shape_of(answer) == {"message", "type", "param", "code"}
        assert time.monotonic() - started < 30


def test_pattern_that_backtracks_elsewhere_costs_nothing(http: httpx2.Client) -> None:
    started = time.monotonic()
    pattern = schema_of({"type": "string", "pattern": "(a+)+" * 20 + "$"})
    answer = http.post("/v1/chat/completions", json={"model": CHAT, "messages": MESSAGES, "max_tokens": 30, **pattern})
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"].startswith('"a')
    assert time.monotonic() - started < 10


BODIES = {
    "deep": b'{"model":"m","messages":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "deep-objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "cut-off": b'{"model": "manta/demo-chat", "messages": [',
    "not-json": b"\xff\xfe\x00",
    "nothing": b"",
    "huge-number": b'{"model":"manta/demo-chat","messages":[{"role":"user","content":"a"}],"seed":'
    + b"9" * 50_000
    + b"}",
    "surrogate": b'{"model":"manta/demo-chat","messages":[{"role":"user","content":"\\ud800"}],"max_tokens":2}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_hostile_bodies_get_a_refusal(http: httpx2.Client, body: bytes) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
        answer = http.post(path, content=body)
        assert 400 <= answer.status_code < 500, answer.text[:500]
        assert shape_of(answer) == {"message", "type", "param", "code"}


def test_body_that_is_too_large_is_refused_before_it_is_read(http: httpx2.Client) -> None:
    started = time.monotonic()
    answer = http.post("/v1/chat/completions", content=b" " * (65 * 1024 * 1024))
    assert answer.status_code == 413
    assert time.monotonic() - started < 20


def test_sql_in_the_authorization_header_is_just_a_wrong_key(http: httpx2.Client) -> None:
    for secret in ("' OR 1=1 --", "sk-manta-'; DROP TABLE api_keys; --", "sk-" + "a" * 5000):
        answer = http.get("/v1/models", headers={"authorization": f"Bearer {secret}"})
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
    assert http.get("/v1/models").status_code == 200


def test_short_requests_are_answered_while_bombs_are_tried(http: httpx2.Client, service: Service, key: str) -> None:
    import threading

    def bomb(number: int) -> None:
        schema = {"type": "object", "properties": {f"a{number}": LONG_ENUM["properties"]["a"]}}  # type: ignore[index]
        headers = {"authorization": f"Bearer {key}"}
        body = {"model": CHAT, "messages": MESSAGES, **schema_of(schema)}
        statuses.append(
            httpx2.post(f"{service.url}/v1/chat/completions", json=body, headers=headers, timeout=120).status_code
        )

    statuses: list[int] = []
    bombs = [threading.Thread(target=bomb, args=(number,)) for number in range(3)]
    for thread in bombs:
        thread.start()
    for model in (CHAT, TRAINED):
        started = time.monotonic()
        answer = http.post("/v1/chat/completions", json={"model": model, "messages": MESSAGES, "max_tokens": 4})
        assert answer.status_code == 200
        assert time.monotonic() - started < 10
    for thread in bombs:
        thread.join()
    assert len(statuses) == 3
    assert all(400 <= status < 500 for status in statuses)


def test_engine_answers_after_all_that(http: httpx2.Client) -> None:
    answer = http.post("/v1/chat/completions", json={"model": CHAT, "messages": MESSAGES, "max_tokens": 4})
    assert answer.status_code == 200
    assert json.loads(answer.content)["choices"][0]["finish_reason"] == "length"
