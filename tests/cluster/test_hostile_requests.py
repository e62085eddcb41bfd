"""Requests made to hurt, against the real engine: each is refused by name, and the engine lives on."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
ABOVE, BELOW, INVALID = "integer_above_max_value", "integer_below_min_value", "invalid_value"
TOO_MANY, TOO_LONG, UNSUPPORTED = "array_above_max_length", "string_above_max_length", "unsupported_parameter"
SCHEMA, TOOL, REGEX = (
    "response_format.json_schema.schema",
    "tools[0].function.parameters",
    "structured_outputs.regex",
)
# Fields of a request, and the parameter and the code of its refusal.
HOSTILE: dict[str, tuple[dict[str, Any], str | None, str | None]] = {
    "n": ({"n": 1_000_000_000}, "n", ABOVE),
    "n-of-the-allowed-kind-but-many-tokens": ({"n": 128, "max_tokens": 10**12}, "max_tokens", ABOVE),
    "max-tokens": ({"max_tokens": -1}, "max_tokens", BELOW),
    "top-logprobs": ({"logprobs": True, "top_logprobs": 1_000_000}, "top_logprobs", ABOVE),
    "logit-bias": ({"logit_bias": {str(i): 1 for i in range(300_000)}}, None, None),
    "logit-bias-off-the-vocabulary": ({"logit_bias": {"999999999": 1}}, "logit_bias", INVALID),
    "logit-bias-negative-token": ({"logit_bias": {"-5": 1}}, "logit_bias", INVALID),
    "stop": ({"stop": ["x" * 1_000_000]}, "stop[0]", TOO_LONG),
    "five-stops": ({"stop": ["a", "b", "c", "d", "e"]}, "stop", TOO_MANY),
    "seed": ({"seed": 10**40}, "seed", ABOVE),
    "cache-salt": ({"cache_salt": "x" * 1025}, "cache_salt", TOO_LONG),
    "priority": ({"priority": -100}, "priority", BELOW),
    "chat-template": ({"chat_template": "{{ 1 }}"}, "chat_template", UNSUPPORTED),
    "arguments-of-the-template": (
        {"chat_template_kwargs": {"messages": []}},
        "chat_template_kwargs.messages",
        UNSUPPORTED,
    ),
    "kv-transfer": ({"kv_transfer_params": {"do_remote_prefill": True}}, "kv_transfer_params", UNSUPPORTED),
    "bad-words": ({"bad_words": ["x"] * 400_000}, "bad_words", TOO_MANY),
    "token-lists": (
        {"stop_token_ids": [1] * 900_000, "allowed_token_ids": [1] * 900_000},
        "stop_token_ids",
        TOO_MANY,
    ),
    "token-off-the-vocabulary": ({"allowed_token_ids": [999_999_999]}, "allowed_token_ids", INVALID),
    "least-length": ({"min_tokens": 2**31 - 1}, "min_tokens", ABOVE),
    "repetition-penalty": ({"repetition_penalty": 1e-300}, "repetition_penalty", "decimal_below_min_value"),
    "regex-that-explodes": ({"structured_outputs": {"regex": "(a*b*)*c"}}, REGEX, INVALID),
    "grammar-that-explodes": (
        {"structured_outputs": {"grammar": 'root ::= root root | "a"'}},
        "structured_outputs.grammar",
        INVALID,
    ),
    "regex-that-is-none": ({"guided_regex": "(a"}, REGEX, INVALID),
    "image": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest/meta-data"}}],
                }
            ]
        },
        "messages[0].content[0].image_url.url",
        "invalid_image_url",
    ),
    "enum": (schema_of(LONG_ENUM), SCHEMA, INVALID),
    "items": (schema_of(MANY_ITEMS), SCHEMA, INVALID),
    "deep": (schema_of(DEEP), None, None),
    "tool-enum": (tool_of(LONG_ENUM), TOOL, INVALID),
    "tool-items": (tool_of(MANY_ITEMS), TOOL, INVALID),
    "strict-tool-enum": (
        strict_tool_of({**LONG_ENUM, "required": ["a"], "additionalProperties": False}),
        TOOL,
        INVALID,
    ),
    "strict-tool-items": (
        strict_tool_of(
            {"type": "object", "properties": {"a": MANY_ITEMS}, "required": ["a"], "additionalProperties": False}
        ),
        TOOL,
        INVALID,
    ),
    "dangling-reference": (schema_of({"$ref": "#/$defs/none"}), SCHEMA, INVALID),
}


def check_refused(answer: httpx2.Response, param: str | None, code: str | None) -> str:
    """Check that a request was refused as a bad one, and return with what words."""
    assert answer.status_code == 400, answer.text[:500]
    error: dict[str, Any] = answer.json()["error"]
    message: str = error.pop("message")
    assert error == {"type": "invalid_request_error", "param": param, "code": code}, message[:500]
    return message


@pytest.mark.parametrize(("fields", "param", "code"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_parameters_get_a_refusal(
    http: httpx2.Client, fields: dict[str, Any], param: str | None, code: str | None
) -> None:
    for stream in (False, True):
        body = {"model": CHAT, "messages": MESSAGES, "max_tokens": 4, "stream": stream, **fields}
        check_refused(http.post("/v1/chat/completions", json=body), param, code)


def test_pattern_that_backtracks_elsewhere_is_followed(http: httpx2.Client) -> None:
    pattern = schema_of({"type": "string", "pattern": "(a+)+" * 20 + "$"})
    answer = http.post("/v1/chat/completions", json={"model": CHAT, "messages": MESSAGES, "max_tokens": 30, **pattern})
    assert answer.status_code == 200
    content = answer.json()["choices"][0]["message"]["content"]  # Anything may stand before what matches.
    assert content.startswith('"')
    assert answer.json()["choices"][0]["finish_reason"] == "length" or content.endswith('a"')


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
        words = check_refused(http.post(path, content=body), None, None)
        assert words.startswith("We could not parse the JSON body of your request.")


def test_body_that_is_too_large_is_refused_before_it_is_read(service: Service, key: str) -> None:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: manta\r\nauthorization: Bearer {key}\r\n"
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
        connection.sendall(f"{head}content-length: {65 * 1024 * 1024}\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_sql_in_the_authorization_header_is_just_a_wrong_key(http: httpx2.Client) -> None:
    for secret in ("' OR 1=1 --", "sk-manta-'; DROP TABLE api_keys; --", "sk-" + "a" * 5000):
        answer = http.get("/v1/models", headers={"authorization": f"Bearer {secret}"})
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
    assert http.get("/v1/models").status_code == 200


def test_short_requests_are_answered_while_bombs_are_tried(http: httpx2.Client) -> None:
    def bomb(number: int) -> httpx2.Response:
        pattern = {"structured_outputs": {"regex": "(a*b*)*c" + "c" * number}}
        return http.post("/v1/chat/completions", json={"model": CHAT, "messages": MESSAGES, **pattern})

    answered_meanwhile = set()
    with ThreadPoolExecutor() as threads:
        bombs = [threads.submit(bomb, number) for number in range(1, 9)]
        while not all(one.done() for one in bombs):
            for model in (CHAT, TRAINED):
                answer = http.post("/v1/chat/completions", json={"model": model, "messages": MESSAGES, "max_tokens": 4})
                assert answer.status_code == 200
                if not all(one.done() for one in bombs):
                    answered_meanwhile.add(model)
    for one in bombs:
        check_refused(one.result(), REGEX, INVALID)
    assert answered_meanwhile == {CHAT, TRAINED}


def test_engine_answers_after_all_that(http: httpx2.Client) -> None:
    answer = http.post("/v1/chat/completions", json={"model": CHAT, "messages": MESSAGES, "max_tokens": 4})
    assert answer.status_code == 200
    assert json.loads(answer.content)["choices"][0]["finish_reason"] == "length"
