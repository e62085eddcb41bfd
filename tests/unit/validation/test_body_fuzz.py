"""Every body, valid or not, is parsed or refused soon."""

import json
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.errors.api import ApiError
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.completions import CompletionRequest
from serve_app.schemas.embeddings import EmbeddingRequest
from serve_app.validation.body import parse_json_body

SCHEMAS = [ChatRequest, CompletionRequest, EmbeddingRequest]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["user", "assistant", "tool", "function", "text", "image_url", "json_schema", "auto", "?string"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8) | st.sampled_from(["?top", "?string"]), inner, max_size=4)
    ),
    max_leaves=20,
)
FULL = {
    "model": "acme/chat",
    "messages": [
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url",
            "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}], "name": "ada"},
        {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
        {"role": "tool", "content": "4", "tool_call_id": "c1"},
    ],
    "temperature": 0.5, "top_p": 1, "n": 2, "stream": True, "stream_options": {"include_usage": True},
    "stop": ["a", "b"], "max_completion_tokens": 5, "presence_penalty": 0, "frequency_penalty": -2,
    "logit_bias": {"5": 1.5}, "logprobs": True, "top_logprobs": 3, "seed": 7, "user": "u", "store": False,
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": {
        "type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": False}}},
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
        {"type": "function", "function": {"name": "f"}}]}},
    "parallel_tool_calls": False, "reasoning_effort": "low", "metadata": {"a": "b"}, "service_tier": "auto",
    "modalities": ["text"], "verbosity": "low", "prediction": {"type": "content", "content": "x"},
    "prompt_cache_key": "k", "safety_identifier": "s",
}  # fmt: skip
FIELDS = sorted(
    set(ChatRequest.model_fields) | set(CompletionRequest.model_fields) | set(EmbeddingRequest.model_fields)
)


def attempt(raw, schema):
    """Return what came of a body: itself or its refusal, and the CPU seconds it took."""
    started = time.process_time()
    try:
        body = parse_json_body(raw, schema)
        body.to_engine_body(raw)
    except ApiError as error:
        return error, time.process_time() - started
    return body, time.process_time() - started


def parse(raw, schema):
    outcome, cpu_s = attempt(raw, schema)
    # A collection of garbage may fall into a measurement; it does not fall into three.
    assert min(cpu_s, *(attempt(raw, schema)[1] for _ in range(2 if cpu_s > 0.05 else 0)), 1) < 0.1
    if not isinstance(outcome, ApiError):
        json.loads(outcome.to_engine_body(raw))
        assert outcome.prompt_estimate_tokens() >= 1
        return outcome
    wire = outcome.to_wire()["error"]
    assert 400 <= outcome.status < 500
    assert wire["message"]
    assert set(wire) == {"message", "type", "param", "code"}
    assert "pydantic" not in wire["message"]
    return None


def places(value):
    """Yield every container of a JSON value with each of its keys."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


@pytest.mark.parametrize("schema", SCHEMAS)
@given(raw=st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(schema, raw):
    parse(raw, schema)


@pytest.mark.parametrize("schema", SCHEMAS)
@given(body=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6))
def test_any_json_in_known_fields_is_refused_or_read(schema, body):
    parse(json.dumps(body).encode(), schema)


@given(value=JSON, seed=st.integers(0, 2**32))
def test_valid_body_with_one_value_exchanged_is_refused_or_read(value, seed):
    body = json.loads(json.dumps(FULL))
    container, key = random.Random(seed).choice(list(places(body)))
    container[key] = value
    parse(json.dumps(body).encode(), ChatRequest)


@given(seed=st.integers(0, 2**32), count=st.integers(1, 4))
def test_valid_body_with_parts_taken_away_is_refused_or_read(seed, count):
    body = json.loads(json.dumps(FULL))
    for _ in range(count):
        container, key = random.Random(seed).choice(list(places(body)))
        del container[key]
    parse(json.dumps(body).encode(), ChatRequest)


@given(st.data())
def test_valid_body_with_bytes_flipped_is_refused_or_read(data):
    raw = bytearray(json.dumps(FULL).encode())
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    parse(bytes(raw), ChatRequest)


def test_full_body_is_read():
    assert parse(json.dumps(FULL).encode(), ChatRequest) is not None
