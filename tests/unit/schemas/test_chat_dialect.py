"""Chat bodies as the engine gets them."""

import json

import pytest

from serve_app.schemas.chat import ChatRequest
from serve_app.validation.body import parse_json_body

HI = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f"}}
OTHER = {"type": "function", "function": {"name": "g"}}
PARAMETERS = {"type": "object", "properties": {"a": {"type": "string"}}}


def sent(*messages, **fields):
    raw = json.dumps({"model": "m", "messages": list(messages) or [HI], **fields}).encode()
    return raw, parse_json_body(raw, ChatRequest)


def rewritten(*messages, has_developer_role=False, **fields):
    raw, body = sent(*messages, **fields)
    result = body.to_engine_body(raw, has_developer_role=has_developer_role)
    assert result is not raw
    return json.loads(result)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0, "max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}},
        {"max_completion_tokens": 5, "stop": ["a"], "seed": 1, "n": 2, "logprobs": True, "top_logprobs": 2},
        {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
        {"tools": [TOOL], "tool_choice": "none"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"response_format": {"type": "json_object"}, "reasoning_effort": "low"},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": PARAMETERS}}},
    ],
)
def test_bytes_pass_untouched_when_the_engine_knows_everything(fields):
    raw, body = sent(**fields)
    assert body.to_engine_body(raw) is raw


def test_history_passes_untouched_when_the_engine_knows_everything():
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
    raw, body = sent(
        {"role": "system", "content": "s"},
        HI,
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "hm"},
        {"role": "tool", "content": [{"type": "text", "text": "x"}], "tool_call_id": "a"},
    )
    assert body.to_engine_body(raw) is raw


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "u"},
        {"metadata": {"a": "b"}, "store": True},
        {"service_tier": "auto", "prompt_cache_key": "k", "safety_identifier": "s", "verbosity": "low"},
        {"prediction": {"type": "content", "content": "x"}, "modalities": ["text"]},
        {"prompt_cache_retention": "24h", "prompt_cache_options": {}},
        {"audio": None, "moderation": None, "web_search_options": None},
        {"stop": None, "n": None, "tools": None, "tool_choice": None, "stream_options": None, "top_logprobs": None},
        {"tool_choice": "auto"},
        {"tool_choice": "none"},
    ],
)
def test_what_does_not_concern_the_engine_is_left_out(fields):
    assert rewritten(**fields) == {"model": "m", "messages": [HI]}


def test_developer_becomes_system_where_the_template_does_not_know_it():
    message = {"role": "developer", "content": "Be kind."}
    assert rewritten(message, HI)["messages"] == [{"role": "system", "content": "Be kind."}, HI]
    raw, body = sent(message, HI)
    assert body.to_engine_body(raw, has_developer_role=True) is raw
    kept = rewritten(message, HI, has_developer_role=True, user="u")
    assert kept["messages"][0] == message


def test_allowed_tools_are_the_only_ones_offered():
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [OTHER]}}
    body = rewritten(tools=[TOOL, OTHER], tool_choice=choice)
    assert body["tools"] == [OTHER]
    assert body["tool_choice"] == "required"


@pytest.mark.parametrize(
    ("call", "choice"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ({"name": "f"}, {"type": "function", "function": {"name": "f"}}),
        (None, None),
    ],
)
def test_functions_become_tools(call, choice):
    fields = {} if call is None else {"function_call": call}
    function = {"name": "f", "description": "d", "parameters": PARAMETERS}
    body = rewritten(functions=[function], **fields)
    assert body["tools"] == [{"type": "function", "function": function}]
    assert body.get("tool_choice") == choice
    assert not {"functions", "function_call"} & set(body)


def test_function_messages_become_tool_messages():
    asked = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    answered = {"role": "function", "name": "f", "content": None}
    _, assistant, tool = rewritten(HI, asked, answered)["messages"]
    assert assistant["tool_calls"] == [
        {"id": tool["tool_call_id"], "type": "function", "function": {"name": "f", "arguments": "{}"}}
    ]
    assert "function_call" not in assistant
    assert (tool["role"], tool["content"], tool["name"]) == ("tool", "", "f")


def test_function_message_without_a_call_gets_an_id_of_its_own():
    assert rewritten({"role": "function", "name": "f", "content": "x"})["messages"][0]["tool_call_id"] == "call_0"


def test_answer_that_a_client_sends_back_loses_what_is_no_input():
    message = {"role": "assistant", "content": "x", "refusal": None, "annotations": [], "audio": None, "name": None,
               "function_call": None, "tool_calls": [], "reasoning_content": "hm"}  # fmt: skip
    assert rewritten(HI, message)["messages"][1] == {"role": "assistant", "content": "x", "reasoning": "hm"}


def test_refusal_becomes_content():
    message = {"role": "assistant", "content": None, "refusal": "I cannot."}
    assert rewritten(HI, message)["messages"][1] == {"role": "assistant", "content": "I cannot."}


def test_reasoning_wins_over_its_older_name():
    message = {"role": "assistant", "content": "x", "reasoning": "new", "reasoning_content": "old"}
    assert rewritten(HI, message)["messages"][1]["reasoning"] == "new"


@pytest.mark.parametrize("arguments", ["", "{", "[]", "5", "not json", '{"a":' * 500 + "1" + "}" * 500])
def test_arguments_that_are_no_object_become_an_empty_one(arguments):
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}, "index": 0}
    messages = rewritten(
        HI, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "x", "tool_call_id": "a"}
    )["messages"]
    assert messages[1]["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    ]  # fmt: skip


def test_marks_of_the_prompt_cache_are_left_out():
    part = {"type": "text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}}
    assert rewritten({"role": "user", "content": [part]})["messages"][0]["content"] == [{"type": "text", "text": "x"}]


def test_obfuscation_is_left_out():
    body = rewritten(stream=True, stream_options={"include_usage": True, "include_obfuscation": False})
    assert body["stream_options"] == {"include_usage": True}


def test_sampling_that_the_engine_refuses_becomes_the_nearest_that_it_takes():
    assert 0 < rewritten(top_p=0)["top_p"] < 1e-5
    assert 0 < rewritten(temperature=0, n=2)["temperature"] <= 0.01
    assert rewritten(temperature=0, n=1, user="u")["temperature"] == 0


CUSTOM = {"type": "custom", "custom": {"name": "c", "description": "d"}}
HELD = {"type": "custom", "custom": {"name": "h", "format": {"type": "grammar", "grammar": {
    "syntax": "regex", "definition": "^a+$"}}}}  # fmt: skip


def test_custom_tools_become_functions_with_one_text():
    body = rewritten(tools=[TOOL, CUSTOM, HELD], tool_choice={"type": "custom", "custom": {"name": "h"}})
    assert body["tools"][0] == TOOL
    assert [tool["function"]["name"] for tool in body["tools"]] == ["f", "c", "h"]
    for tool in body["tools"][1:]:
        assert tool["type"] == "function"
        assert tool["function"]["parameters"]["required"] == ["input"]
        assert tool["function"]["strict"] is True
    assert body["tools"][1]["function"]["description"].startswith("d\n\n")
    assert body["tools"][2]["function"]["description"].endswith("\n\n^a+$")
    assert body["custom_tools"] == {"c": None, "h": 'root ::= "a" +'}
    assert body["tool_choice"] == {"type": "function", "function": {"name": "h"}}


def test_allowed_tools_may_be_custom_ones():
    allowed = [{"type": "custom", "custom": {"name": "h"}}, {"type": "function", "function": {"name": "f"}}]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": allowed}}
    body = rewritten(tools=[TOOL, CUSTOM, HELD], tool_choice=choice)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["f", "h"]
    assert list(body["custom_tools"]) == ["h"]


def test_calls_of_custom_tools_are_read_as_calls_of_functions():
    call = {"id": "call_1", "type": "custom", "custom": {"name": "c", "input": 'say "a"\n'}, "index": 0}
    answered = {"role": "tool", "tool_call_id": "call_1", "content": "ok"}
    _, assistant, _ = rewritten(HI, {"role": "assistant", "content": None, "tool_calls": [call]}, answered)["messages"]
    (called,) = assistant["tool_calls"]
    assert (called["type"], called["function"]["name"]) == ("function", "c")
    assert json.loads(called["function"]["arguments"]) == {"input": 'say "a"\n'}
    assert set(called) == {"id", "type", "function"}
