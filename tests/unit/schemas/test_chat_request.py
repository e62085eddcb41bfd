"""The chat body: defaults and bounds of the specification, OpenAI's fields, and what it tells of itself."""

import inspect
import json

import pytest
from openai.types.chat import completion_create_params
from pydantic import ValidationError

from serve_app.schemas.chat import ChatRequest

HI = {"role": "user", "content": "hi"}
CUSTOM = {"type": "custom", "custom": {"name": "c"}}
TOOL = {"type": "function", "function": {"name": "f"}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}


def chat(*messages, **fields):
    return ChatRequest.model_validate({"model": "m", "messages": list(messages) or [HI], **fields})


def accepts(*messages, **fields):
    try:
        chat(*messages, **fields)
    except ValidationError:
        return False
    return True


def test_defaults_are_those_of_the_specification():
    body = chat()
    assert (body.temperature, body.top_p, body.n, body.stream) == (1.0, 1.0, 1, False)
    assert (body.presence_penalty, body.frequency_penalty) == (0, 0)
    assert (body.stop, body.response_format, body.tools, body.seed, body.max_tokens) == (None,) * 5


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("temperature", [0, 2, 1.5, None], [-0.01, 2.01, "1", True]),
        ("top_p", [0, 1, 0.5, None], [-0.01, 1.01]),
        ("presence_penalty", [-2, 2, 0.5, None], [-2.01, 2.01]),
        ("frequency_penalty", [-2, 2, None], [-2.01, 2.01]),
        ("n", [1, 128, None], [0, 129, -1, 1.0, "1"]),
        ("seed", [-(2**63), 2**63 - 1, 0, None], [2**63, -(2**63) - 1, 1.5]),
        ("max_tokens", [1, 10**6, None], [0, -1, 2**31, "5"]),
        ("max_completion_tokens", [1, None], [0]),
        ("stop", ["a", ["a"] * 4, [], "a" * 1024, None], [["a"] * 5, "", [""], "a" * 1025, ["a" * 1025], [None]]),
        (
            "logit_bias",
            [{}, {"0": -100, "1": 100.0}, {str(i): 0 for i in range(300)}, None],
            [{"a": 1}, {"-1": 1}, {"1.5": 1}, {"": 1}, {"1": 100.5}, {"1": "1"}, {"1": None}, {"1": True},
             {"12345678901": 1}, {"\u0661": 1}, {str(i): 0 for i in range(301)}],
        ),
        ("logprobs", [True, False, None], [1, "true"]),
        ("top_logprobs", [0, None], [-1, 1.0, 20]),
        ("stream", [True, False, None], [1, "true"]),
        ("metadata", [{}, {"k" * 64: "v" * 512}, {str(i): "" for i in range(16)}, None],
         [{"k" * 65: ""}, {"k": "v" * 513}, {"k": 1}, {str(i): "" for i in range(17)}, []]),
        ("model", ["m", "a/b", "x" * 256], ["", "x" * 257, None, 5]),
        ("user", ["u", None], [5]),
        ("safety_identifier", ["u" * 128, None], ["u" * 129]),
        ("service_tier", ["auto", "default", "flex", "scale", "priority", "ultrafast", None], ["gold"]),
        ("reasoning_effort", ["none", "minimal", "low", "medium", "high", "xhigh", None], ["most"]),
        ("verbosity", ["low", "medium", "high", None], ["none"]),
        ("modalities", [["text"], [], None], [["audio"], ["text", "audio"], ["video"], "text"]),
        ("prompt_cache_retention", ["in_memory", "24h", None], ["1h"]),
        ("store", [True, False, None], ["yes"]),
        ("parallel_tool_calls", [True, False, None], [0]),
        ("audio", [None], [{"voice": "alloy", "format": "wav"}]),
        ("moderation", [None, {"model": "x"}], [{}, {"model": "x", "policy": {"input": {"mode": "x"}}}]),
        ("web_search_options", [None], [{}]),
        ("response_format", [{"type": "text"}, {"type": "json_object"}, None], [{"type": "grammar"}, "text", {}]),
        ("tools", [[TOOL], [TOOL] * 128, None], [[], [TOOL] * 129, [{"type": "function"}], {}]),
        ("tool_choice", ["none", "auto", None], ["required", "any", {"type": "function", "function": {"name": "f"}}]),
        ("stream_options", [None], [{}, {"include_usage": True}]),
    ],
)  # fmt: skip
def test_bounds_of_a_field(name, inside, outside):
    assert [value for value in inside if not accepts(**{name: value})] == []
    assert [value for value in outside if accepts(**{name: value})] == []


def test_every_field_that_the_openai_client_sends_is_known():
    fields = set()
    for _, params in inspect.getmembers(completion_create_params, inspect.isclass):
        if params.__name__.startswith("CompletionCreateParams"):
            fields |= set(params.__annotations__)
    assert {"messages", "model", "stream", "tools"} <= fields
    assert fields <= set(ChatRequest.model_fields)


@pytest.mark.parametrize(
    ("message", "is_accepted"),
    [
        ({"role": "system", "content": "x", "name": "n"}, True),
        ({"role": "system", "content": [{"type": "text", "text": "x"}]}, True),
        ({"role": "system", "content": [PICTURE]}, False),
        ({"role": "system", "content": None}, False),
        ({"role": "developer", "content": "x"}, True),
        ({"role": "user", "content": ""}, True),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,A"}}]}, True),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]}, False),
        ({"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png;base64,A"}]}, False),
        ({"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}, False),
        ({"role": "user", "content": [{"type": "refusal", "refusal": "x"}]}, False),
        ({"role": "user", "content": [{"type": "video_url", "video_url": {"url": "x"}}]}, False),
        ({"role": "user", "content": []}, False),
        ({"role": "assistant", "content": "x"}, True),
        ({"role": "assistant", "content": "x", "refusal": None, "annotations": [], "audio": None,
          "function_call": None, "tool_calls": None, "reasoning_content": "x"}, True),
        ({"role": "assistant", "content": None, "refusal": "no"}, True),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, True),
        ({"role": "assistant", "content": None}, False),
        ({"role": "assistant"}, False),
        ({"role": "assistant", "content": None, "tool_calls": []}, False),
        ({"role": "assistant", "content": "x", "audio": {"id": "a"}}, False),
        ({"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}, True),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "custom", "custom": {}}]}, False),
        ({"role": "function", "name": "f", "content": "x"}, True),
        ({"role": "function", "name": "f", "content": None}, True),
        ({"role": "function", "content": "x"}, False),
        ({"role": "tool", "content": "x"}, False),
        ({"role": "tool", "content": "x", "tool_call_id": "a"}, False),
        ({"role": "critic", "content": "x"}, False),
        ({"role": "user", "content": "x", "tools": []}, False),
    ],
)  # fmt: skip
def test_rules_of_a_message(message, is_accepted):
    assert accepts(message) is is_accepted


def calls(*ids):
    return {
        "role": "assistant",
        "tool_calls": [{"id": i, "type": "function", "function": {"name": "f", "arguments": ""}} for i in ids],
    }


def answer(call_id):
    return {"role": "tool", "content": "x", "tool_call_id": call_id}


@pytest.mark.parametrize(
    ("messages", "is_accepted"),
    [
        ([calls("a"), answer("a")], True),
        ([calls("a", "b"), answer("b"), answer("a"), HI], True),
        ([calls("a"), answer("a"), answer("a")], True),
        ([calls("a"), answer("a"), calls("b"), answer("b")], True),
        ([calls("a")], False),
        ([calls("a"), HI], False),
        ([calls("a", "b"), answer("a"), HI], False),
        ([calls("a"), answer("b")], False),
        ([answer("a")], False),
        ([calls("a"), answer("a"), HI, answer("a")], False),
        ([calls("a"), answer("a"), calls("b"), answer("a")], False),
    ],
)
def test_tool_messages_answer_the_calls_before_them(messages, is_accepted):
    assert accepts(HI, *messages) is is_accepted


@pytest.mark.parametrize(
    ("choice", "is_accepted"),
    [
        ("required", True),
        ({"type": "function", "function": {"name": "f"}}, True),
        ({"type": "function", "function": {"name": "g"}}, False),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOL]}}, True),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": [TOOL]}}, False),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, False),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
            {"type": "function", "function": {"name": "g"}}]}}, False),
        ({"type": "custom", "custom": {"name": "f"}}, False),
        ({"type": "custom", "custom": {"name": "c"}}, True),
        ({"type": "function", "function": {"name": "c"}}, False),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TOOL, CUSTOM]}}, True),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
            {"type": "custom", "custom": {"name": "f"}}]}}, False),
    ],
)  # fmt: skip
def test_tool_choice_is_among_the_tools(choice, is_accepted):
    assert accepts(tools=[TOOL, CUSTOM], tool_choice=choice) is is_accepted


@pytest.mark.parametrize("name", ["", "a b", "a" * 65, "a.b", "é", "f\n"])
def test_tool_name_outside_of_the_pattern_is_refused(name):
    assert not accepts(tools=[{"type": "function", "function": {"name": name}}])


def test_functions_and_tools_exclude_each_other():
    assert accepts(functions=[{"name": "f"}], function_call={"name": "f"})
    assert accepts(functions=[{"name": "f"}], function_call="auto")
    assert not accepts(functions=[{"name": "f"}], tools=[TOOL])
    assert not accepts(functions=[{"name": "f"}], function_call={"name": "g"})
    assert not accepts(function_call={"name": "g"})


def test_functions_have_their_schemas_checked():
    assert not accepts(functions=[{"name": "f", "parameters": {"properties": []}}])
    assert not accepts(tools=[{"type": "function", "function": {"name": "f", "parameters": {"anyOf": []}}}])


@pytest.mark.parametrize(
    ("parameters", "is_accepted"),
    [
        (None, True),
        ({}, True),
        ({"type": "object"}, True),
        ({"type": ["object", "null"]}, True),
        ({"type": "string"}, False),
        ({"type": ["string", "null"]}, False),
    ],
)
def test_the_arguments_of_a_function_are_an_object(parameters, is_accepted):
    function = {"name": "f", "parameters": parameters}
    assert accepts(tools=[{"type": "function", "function": function}]) == is_accepted
    assert accepts(functions=[function]) == is_accepted


def test_limits_on_logprobs_hold_when_they_are_wanted():
    assert accepts(logprobs=True, top_logprobs=20)
    assert not accepts(logprobs=True, top_logprobs=21)
    assert not accepts(logprobs=False, top_logprobs=1)


def test_stream_options_hold_when_streaming():
    assert accepts(stream=True, stream_options={"include_usage": True, "include_obfuscation": False})
    assert accepts(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert not accepts(stream=True, stream_options={"other": True})


def test_body_is_frozen():
    with pytest.raises(ValidationError):
        chat().model = "other"


def test_bound_on_tokens_is_that_of_whichever_field_was_sent():
    assert chat().max_tokens_bound() is None
    assert chat(max_tokens=5).max_tokens_bound() == 5
    assert chat(max_completion_tokens=7).max_tokens_bound() == 7


def test_body_tells_what_the_model_must_be_able_to_do():
    assert (chat().has_images, chat().has_tools, chat().is_stream, chat(n=None).num_choices) == (False, False, False, 1)
    assert chat({"role": "user", "content": [PICTURE]}).has_images
    assert chat(tools=[TOOL]).has_tools
    assert not chat(tools=[TOOL], tool_choice="none").has_tools
    assert chat(functions=[{"name": "f"}]).has_tools
    assert not chat(functions=[{"name": "f"}], function_call="none").has_tools
    assert chat(stream=True, n=3).num_choices == 3
    assert chat(stream=True).is_stream


def test_estimate_grows_with_texts_pictures_and_tools():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10_000}}
    short = chat().prompt_estimate_tokens()
    assert 3 <= short <= 10
    assert 1_000 <= chat({"role": "user", "content": "word " * 1_000}).prompt_estimate_tokens() <= 1_500
    assert chat({"role": "user", "content": "語" * 1_000}).prompt_estimate_tokens() >= 600
    assert 700 <= chat({"role": "user", "content": [picture]}).prompt_estimate_tokens() <= 1_000
    tool = {"type": "function", "function": {"name": "f", "parameters": {"title": "x" * 400}}}
    assert chat(tools=[tool]).prompt_estimate_tokens() > 100 + short
    history = [calls("a"), answer("a"), {"role": "assistant", "content": [{"type": "refusal", "refusal": "x" * 400}]}]
    assert chat(HI, *history).prompt_estimate_tokens() > 100
    legacy = {"role": "assistant", "function_call": {"name": "f", "arguments": "x" * 400}}
    assert chat(HI, legacy).prompt_estimate_tokens() > 100


def test_affinity_is_the_same_for_bodies_that_begin_alike():
    system = {"role": "system", "content": "You are a pirate."}
    first = chat(system, HI, tools=[TOOL])
    later = chat(system, HI, {"role": "assistant", "content": "Arr"}, {"role": "user", "content": "More"}, tools=[TOOL])
    assert first.affinity_prefix() == later.affinity_prefix()
    assert first.affinity_prefix() != chat(system, {"role": "user", "content": "other"}).affinity_prefix()
    assert first.affinity_prefix() != chat(system, HI).affinity_prefix()
    assert first.affinity_prefix() != chat(system, HI, tools=[TOOL], prompt_cache_key="k").affinity_prefix()


def test_affinity_is_bounded():
    body = chat({"role": "system", "content": "x" * 5_000}, {"role": "user", "content": "y" * 5_000})
    assert body.affinity_prefix() == "\x1f" + "x" * 1_023


def test_texts_of_the_prompt_come_in_order():
    body = chat({"role": "system", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]})
    assert body.prompt_texts() == ["a", "b"]


def test_body_from_bytes_of_duplicate_keys_takes_the_last():
    raw = b'{"model":"m","n":2,"n":1,"messages":[{"role":"user","content":"hi"}]}'
    assert ChatRequest.model_validate(json.loads(raw)).n == 1
