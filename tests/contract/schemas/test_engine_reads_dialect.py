"""vLLM's own request models read what the schemas hand to the engine, as it was meant."""

import json
import os

import pytest

from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.completions import CompletionRequest
from serve_app.schemas.embeddings import EmbeddingRequest
from serve_app.validation.body import parse_json_body

pytestmark = pytest.mark.filterwarnings("ignore")

HI = {"role": "user", "content": "hi"}
PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": PARAMETERS, "strict": True}}
OTHER = {"type": "function", "function": {"name": "g"}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "b"}'}}


@pytest.fixture(scope="module")
def protocols():
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest as EngineCompletionRequest
    from vllm.entrypoints.pooling.embed.protocol import EmbeddingCompletionRequest

    return {
        ChatRequest: ChatCompletionRequest,
        CompletionRequest: EngineCompletionRequest,
        EmbeddingRequest: EmbeddingCompletionRequest,
    }


def read(protocols, schema, body):
    raw = json.dumps(body).encode()
    read = protocols[schema].model_validate_json(parse_json_body(raw, schema).to_engine_body(raw))
    assert not read.model_extra
    return read


def chat(protocols, *messages, **fields):
    return read(protocols, ChatRequest, {"model": "m", "messages": list(messages) or [HI], **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0, "top_p": 0, "n": 2, "stop": ["a", "b"], "seed": 5, "max_completion_tokens": 7},
        {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}},
        {"logit_bias": {"5": 1, "6": -1.5}, "logprobs": True, "top_logprobs": 20, "presence_penalty": -2},
        {"n": None, "stop": None, "temperature": None, "logprobs": None, "tools": None, "tool_choice": None},
        {"metadata": {"a": "b"}, "store": True, "user": "u", "service_tier": "flex", "prompt_cache_key": "k",
         "safety_identifier": "s", "verbosity": "low", "prompt_cache_retention": "24h", "modalities": ["text"],
         "prediction": {"type": "content", "content": "x"}},
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {
            "name": "a", "schema": PARAMETERS, "strict": True, "description": "d"}}},
        {"reasoning_effort": "minimal"},
        {"tool_choice": "auto"},
        {"tools": [TOOL], "parallel_tool_calls": False},
    ],
)  # fmt: skip
def test_chat_body_is_read(protocols, fields):
    chat(protocols, **fields)


def test_sampling_parameters_arrive(protocols):
    body = chat(protocols, temperature=0.5, top_p=0.9, seed=7, stop=["x"], max_completion_tokens=9, logit_bias={"3": 5})
    params = body.to_sampling_params(9, {})
    assert (params.temperature, params.top_p, params.seed, params.stop) == (0.5, 0.9, 7, ["x"])
    assert params.logit_bias == {3: 5.0}


@pytest.mark.parametrize(
    "fields", [{"temperature": 0, "n": 2}, {"top_p": 0}, {"n": None, "logprobs": True, "top_logprobs": None}]
)
def test_sampling_that_the_engine_alone_would_refuse_is_taken(protocols, fields):
    chat(protocols, **fields).to_sampling_params(5, {})


def test_schema_arrives_whole(protocols):
    wanted = {"name": "a", "schema": PARAMETERS, "strict": True}
    body = chat(protocols, response_format={"type": "json_schema", "json_schema": wanted})
    assert body.extract_structured_outputs().json == PARAMETERS


@pytest.mark.parametrize(
    ("choice", "read_as", "tools"),
    [
        (None, "auto", ["f", "g"]),
        ("none", "none", ["f", "g"]),
        ("required", "required", ["f", "g"]),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [OTHER]}}, "required", ["g"]),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TOOL]}}, "auto", ["f"]),
    ],
)
def test_tools_arrive_as_chosen(protocols, choice, read_as, tools):
    body = chat(protocols, tools=[TOOL, OTHER], **({} if choice is None else {"tool_choice": choice}))
    assert body.tool_choice == read_as
    assert [tool.function.name for tool in body.tools] == tools


def test_functions_arrive_as_tools(protocols):
    function = {"name": "f", "parameters": PARAMETERS}
    body = chat(protocols, functions=[function], function_call={"name": "f"})
    assert body.tools[0].function.name == body.tool_choice.function.name == "f"


def test_history_arrives(protocols):
    body = chat(
        protocols,
        {"role": "developer", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None, "annotations": []},
        {"role": "tool", "content": "x", "tool_call_id": "c", "name": "f"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "x"},
        {"role": "assistant", "content": "done", "reasoning_content": "hm"},
    )
    assert [message["role"] for message in body.messages] == [
        "system", "user", "assistant", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert body.messages[5]["tool_call_id"] == body.messages[4]["tool_calls"][0]["id"]
    assert body.messages[6]["reasoning"] == "hm"


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "a"},
        {"prompt": ["a", "b"], "n": 2, "temperature": 0, "best_of": 2},
        {"prompt": [1, 2], "echo": True, "max_tokens": 0, "logprobs": 5},
        {"prompt": [[1], [2]], "suffix": None, "user": "u", "stream": True, "stream_options": {"include_usage": True}},
    ],
)
def test_completion_body_is_read(protocols, fields):
    body = read(protocols, CompletionRequest, {"model": "m", **fields})
    body.to_sampling_params(5, {})
    assert body.prompt == fields["prompt"]


@pytest.mark.parametrize("value", ["a", ["a", "b"], [1, 2], [[1], [2]]])
def test_embedding_body_is_read(protocols, value):
    body = read(protocols, EmbeddingRequest, {"model": "m", "input": value, "encoding_format": "base64"})
    assert (body.input, body.encoding_format, body.truncate_prompt_tokens) == (value, "base64", -1)


def test_last_of_duplicate_keys_counts_for_the_engine_too(protocols):
    raw = b'{"model":"m","n":2,"n":1,"messages":[{"role":"user","content":"hi"}]}'
    assert parse_json_body(raw, ChatRequest).n == 1
    assert protocols[ChatRequest].model_validate_json(raw).n == 1
