"""The bodies of the responses interface: what is taken, and the exact word on what is not."""

import time

import orjson
import pytest

from serve_app.errors.api import BadRequest
from serve_app.schemas.responses.request import CompactRequest, InputTokensRequest, ResponseRequest
from serve_app.validation.body import parse_json_body

PNG, TEXT = "data:image/png;base64,AA==", "data:text/plain;base64,AA=="
FUNCTION = {"type": "function", "name": "f", "description": "F.", "parameters": {"type": "object"}}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"}
EVERYTHING = {
    "model": "m",
    "input": [
        {"role": "developer", "content": "a"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "b"}]},
        {
            "role": "user",
            "content": [{"type": "input_image", "image_url": PNG, "detail": "low"}],
        },
        {
            "role": "user",
            "content": [{"type": "input_file", "file_data": TEXT, "filename": "f"}],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "c"}]},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "d", "annotations": [], "logprobs": []}],
        },
        {**CALL, "parsed_arguments": None, "caller": None, "namespace": None},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "e"}]},
        {"type": "item_reference", "id": "msg_9"},
        {"type": "compaction", "encrypted_content": "zzz"},
    ],
    "instructions": "g",
    "tools": [{**FUNCTION, "strict": None}],
    "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]},
    "parallel_tool_calls": False,
    "temperature": 0.5,
    "top_p": 0.5,
    "max_output_tokens": 16,
    "max_tool_calls": 3,
    "previous_response_id": "resp_1",
    "store": True,
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "background": True,
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
    "truncation": "auto",
    "metadata": {"a": "b"},
    "top_logprobs": 3,
    "prompt_cache_key": "k",
    "safety_identifier": "s",
    "user": "u",
    "service_tier": "auto",
}


def parse(body, schema=ResponseRequest):
    return parse_json_body(orjson.dumps(body), schema)


def refusal(body, schema=ResponseRequest):
    with pytest.raises(BadRequest) as caught:
        parse(body, schema)
    return caught.value


def test_everything_of_the_interface_is_taken():
    body = parse(EVERYTHING)
    assert body.is_stream
    assert body.wants_logprobs
    assert len(body.input) == 10


def test_every_nullable_field_may_be_null():
    nullable = {name: None for name in EVERYTHING if name not in ("model", "input")}
    assert parse({"model": "m", "input": "x", **nullable}).is_stream is False


def test_conversation_is_an_id_or_an_object_with_one():
    for conversation in ("conv_1", {"id": "conv_1"}):
        assert parse({"model": "m", "input": "x", "conversation": conversation}).conversation_id == "conv_1"


def user(part):
    return {"input": [{"role": "user", "content": [part]}]}


def brings(*tools):
    return {"input": [{"type": "additional_tools", "role": "developer", "tools": list(tools)}]}


def updates(**settings):
    return {"input": [{"type": "configuration_update", **settings}]}


INVALID, UNSUPPORTED = "invalid_value", "unsupported_value"
BROUGHT = "input[0].tools[0]"
SKILLS = "tools[0].environment.skills"
CLIENT = {"execution": "client"}
FORMAT = {"type": "json_schema", "name": "n", "schema": {"type": "array"}}
GROUPS = [
    {"type": "namespace", "name": f"n{n}", "tools": [{"type": "function", "name": f"f{m}"} for m in range(100)]}
    for n in range(100)
]
IMAGE = {"type": "input_image", "image_url": "https://x/y.png"}
REFUSED = [
    ({"input": None}, "input", "missing_required_parameter"),
    ({"input": 5}, "input", "invalid_type"),
    ({"input": [5]}, "input[0]", "invalid_type"),
    ({"input": [{}]}, "input[0].type", "missing_required_parameter"),
    ({"input": [{"type": "nonsense"}]}, "input[0].type", "invalid_value"),
    ({"input": [{"type": ["message"]}]}, "input[0].type", "invalid_type"),
    ({"input": [{"type": "additional_tools", "tools": []}]}, "input[0].role", "missing_required_parameter"),
    (brings({"type": "function"}), "input[0].tools[0].name", "missing_required_parameter"),
    (brings({"type": "computer"}), "input[0].tools[0].type", "unsupported_value"),
    (brings({"type": "mcp", "server_label": "a", "server_url": "https://a.b"}), "input[0].tools[0].type", UNSUPPORTED),
    (brings({"type": "function", "name": "f", "parameters": {"type": "string"}}), f"{BROUGHT}.parameters", INVALID),
    (brings({"type": "function", "name": "shell"}, {"type": "shell"}), "input[0].tools[1].type", INVALID),
    ({"input": [{"type": "tool_search_output", "call_id": "c"}]}, "input[0].tools", "missing_required_parameter"),
    ({"input": [{"type": "configuration_update"}]}, "input[0].reasoning", "missing_required_parameter"),
    (updates(reasoning={"effort": "huge"}), "input[0].reasoning.effort", INVALID),
    (updates(text={}), "input[0].text.format", "missing_required_parameter"),
    (updates(text={"format": {**FORMAT, "strict": True}}), "input[0].text.format.schema", "invalid_value"),
    ({"input": [{"type": "computer_call"}]}, "input[0].call_id", "missing_required_parameter"),
    (
        {"input": [{"type": "web_search_call", "id": "ws_1", "action": {"type": "find_in_page", "url": "u"}}]},
        "input[0].action.pattern",
        "missing_required_parameter",
    ),
    ({"input": [{"role": "user", "content": "a"}, {"role": "tool", "content": "a"}]}, "input[1].role", "invalid_value"),
    ({"input": [{"role": "user"}]}, "input[0].content", "missing_required_parameter"),
    ({"input": [{"role": "user", "content": []}]}, "input[0].content", "empty_array"),
    ({"input": [{"role": "user", "content": 5}]}, "input[0].content", "invalid_type"),
    ({"input": [{"role": "user", "content": "a", "x": 1}]}, "input[0].x", "unknown_parameter"),
    (user({"type": "text", "text": "a"}), "input[0].content[0].type", "invalid_value"),
    (user({"type": "input_text"}), "input[0].content[0].text", "missing_required_parameter"),
    (user({"type": "input_text", "text": 1}), "input[0].content[0].text", "invalid_type"),
    (user(IMAGE), "input[0].content[0].image_url", "invalid_image_url"),
    (user({"type": "input_image"}), "input[0].content[0].image_url", "missing_required_parameter"),
    (user({"type": "input_file", "file_id": ""}), "input[0].content[0].file_id", "empty_string"),
    (user({"type": "input_file"}), "input[0].content[0].file_data", "missing_required_parameter"),
    (
        user({"type": "input_file", "file_id": "f", "file_data": TEXT}),
        "input[0].content[0].file_data",
        "mutually_exclusive_parameters",
    ),
    (
        user({"type": "input_image", "file_id": "f", "image_url": PNG}),
        "input[0].content[0].image_url",
        "mutually_exclusive_parameters",
    ),
    (user({"type": "input_file", "file_data": "QQ=="}), "input[0].content[0].file_data", "invalid_value"),
    (user({"type": "input_file", "file_url": "f"}), "input[0].content[0].file_url", "unsupported_value"),
    (
        user({"type": "input_file", "file_data": "data:application/pdf;base64,AA"}),
        "input[0].content[0].file_data",
        "unsupported_value",
    ),
    (user({"type": "output_text", "text": "a"}), "input[0].content[0].type", "invalid_value"),
    (
        {"input": [{"role": "assistant", "content": [{"type": "input_text", "text": "a"}]}]},
        "input[0].content[0].type",
        "invalid_value",
    ),
    ({"input": [{**CALL, "name": "a b"}]}, "input[0].name", "invalid_value"),
    ({"input": [{**CALL, "call_id": ""}]}, "input[0].call_id", "empty_string"),
    ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output", "missing_required_parameter"),
    (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "output_text", "text": "x"}]}]},
        "input[0].output[0].type",
        "invalid_value",
    ),
    (
        {"input": [{"type": "reasoning", "summary": [{"type": "summary_text"}]}]},
        "input[0].summary[0].text",
        "missing_required_parameter",
    ),
    ({"tools": [{"type": "shell", "environment": {"type": "cloud"}}]}, "tools[0].environment.type", INVALID),
    (
        {"tools": [{"type": "shell", "environment": {"type": "container_auto", "skills": [{"type": "inline"}]}}]},
        SKILLS,
        "unsupported_parameter",
    ),
    ({"tools": [{"type": "tool_search", "description": "x"}]}, "tools[0].description", "invalid_parameter_combination"),
    ({"tools": [{"type": "tool_search", **CLIENT, "parameters": {"type": "string"}}]}, "tools[0].parameters", INVALID),
    ({"tools": [{"type": "shell"}, {"type": "shell"}]}, "tools[1].type", INVALID),
    ({"tools": [{"type": "shell"}, {"type": "function", "name": "shell"}]}, "tools[1].name", INVALID),
    ({"tools": [{"type": "shell"}], "tool_choice": {"type": "apply_patch"}}, "tool_choice.type", INVALID),
    ({"tools": GROUPS}, "tools", "array_above_max_length"),
    ({"tools": [{"type": "function", "name": "f"}] * 10_000}, "tools", "array_above_max_length"),
    (
        {"tools": [{"type": "web_search", "filters": {"allowed_domains": ["a.example", "https://b.example/"]}}]},
        "tools[0].filters.allowed_domains[1]",
        "invalid_value",
    ),
    (
        {"tools": [{"type": "web_search", "filters": {"allowed_domains": ["localhost"]}}]},
        "tools[0].filters.allowed_domains[0]",
        "invalid_value",
    ),
    (
        {"tools": [{"type": "web_search", "filters": {"blocked_domains": []}}]},
        "tools[0].filters.blocked_domains",
        "unknown_parameter",
    ),
    (
        {"tools": [{"type": "web_search", "search_context_size": "huge"}]},
        "tools[0].search_context_size",
        "invalid_value",
    ),
    (
        {"tools": [{"type": "web_search", "user_location": {"type": "approximate", "country": "Germany"}}]},
        "tools[0].user_location.country",
        "invalid_value",
    ),
    (
        {"tools": [{"type": "web_search_preview", "filters": {"allowed_domains": []}}]},
        "tools[0].filters",
        "unknown_parameter",
    ),
    (
        {"tools": [{"type": "web_search_preview", "search_content_types": ["text", "image"]}]},
        "tools[0].search_content_types[1]",
        "invalid_value",
    ),
    (
        {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search_preview"}},
        "tool_choice.type",
        "invalid_value",
    ),
    ({"tools": [{"type": "code_interpreter"}]}, "tools[0].container", "missing_required_parameter"),
    ({"tools": [{"type": "code_interpreter", "container": 5}]}, "tools[0].container", "invalid_type"),
    (
        {"tools": [{"type": "code_interpreter", "container": {}}]},
        "tools[0].container.type",
        "missing_required_parameter",
    ),
    (
        {"tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["f"] * 51}}]},
        "tools[0].container.file_ids",
        "array_above_max_length",
    ),
    (
        {
            "tools": [
                {
                    "type": "code_interpreter",
                    "container": {"type": "auto", "network_policy": {"type": "allowlist", "allowed_domains": ["a"]}},
                }
            ]
        },
        "tools[0].container.network_policy.type",
        "unsupported_value",
    ),
    ({"tools": [{"type": "file_search"}]}, "tools[0].vector_store_ids", "missing_required_parameter"),
    (
        {"tools": [{"type": "file_search", "vector_store_ids": []}]},
        "tools[0].vector_store_ids",
        "empty_array",
    ),
    (
        {"tools": [{"type": "file_search", "vector_store_ids": ["v"], "max_num_results": 51}]},
        "tools[0].max_num_results",
        "integer_above_max_value",
    ),
    ({"input": [{"type": "file_search_call", "id": "fs_1"}]}, "input[0].queries", "missing_required_parameter"),
    (
        {"tools": [FUNCTION], "tool_choice": {"type": "code_interpreter"}},
        "tool_choice.type",
        "invalid_value",
    ),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].name", "missing_required_parameter"),
    ({"tools": [FUNCTION] * 129}, "tools", "array_above_max_length"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ({"tool_choice": {"type": "computer"}}, "tool_choice.type", "unsupported_value"),
    ({"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice.name", "invalid_value"),
    (
        {
            "tools": [FUNCTION],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]},
        },
        "tool_choice.tools[0].name",
        "invalid_value",
    ),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type", "invalid_value"),
    ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema", "missing_required_parameter"),
    (
        {"text": {"format": {"type": "json_schema", "name": "n", "strict": True, "schema": {"type": "array"}}}},
        "text.format.schema",
        "invalid_value",
    ),
    (
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"enum": ["x" * 20] * 1000}}}},
        "text.format.schema",
        "invalid_value",
    ),
    (
        {"tools": [{**FUNCTION, "parameters": {"type": "array", "minItems": 10**9}}]},
        "tools[0].parameters",
        "invalid_value",
    ),
    ({"previous_response_id": "a", "conversation": "b"}, "previous_response_id", "mutually_exclusive_parameters"),
    ({"background": True, "store": False}, "background", "invalid_parameter_combination"),
    ({"stream_options": {}}, "stream_options", "invalid_value"),
    ({"include": ["everything"]}, "include[0]", "invalid_value"),
    ({"truncation": "middle"}, "truncation", "invalid_value"),
    ({"temperature": 2.1}, "temperature", "decimal_above_max_value"),
    ({"max_output_tokens": 0}, "max_output_tokens", "integer_below_min_value"),
    ({"metadata": {"a": 1}}, "metadata", "invalid_type"),
    ({"metadata": {str(n): "" for n in range(17)}}, "metadata", "object_above_max_properties"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt", "unsupported_parameter"),
    ({"moderation": {"policy": None}}, "moderation.model", "missing_required_parameter"),
    (
        {"moderation": {"model": "x", "policy": {"input": {"mode": "x"}}}},
        "moderation.policy.input.mode",
        "invalid_value",
    ),
    ({"messages": []}, "messages", "unknown_parameter"),
    ({"cache_salt": "x"}, "cache_salt", "unknown_parameter"),
]


@pytest.mark.parametrize(("change", "param", "code"), REFUSED)
def test_malformed_bodies_are_refused_by_name(change, param, code):
    error = refusal({"model": "m", "input": "x", **change})
    assert (error.param, error.code) == (param, code)
    assert error.message


def test_a_reusable_prompt_is_refused_with_what_to_send_instead():
    assert "'instructions'" in refusal({"model": "m", "prompt": {"id": "pmpt_1"}}).message


def test_a_million_items_are_refused_quickly():
    raw = b'{"model":"m","input":[' + b",".join([b'{"role":"user","content":"a"}'] * 1_000_000) + b"]}"
    started = time.perf_counter()
    with pytest.raises(BadRequest, match="too many"):
        parse_json_body(raw, ResponseRequest)
    assert time.perf_counter() - started < 5


def test_the_other_bodies_are_as_strict():
    assert parse({"model": "m", "input": "x", "tools": [FUNCTION]}, InputTokensRequest).tools[0].name == "f"
    assert refusal({"model": "m", "input": "x", "stream": True}, InputTokensRequest).param == "stream"
    assert parse({"model": "m", "previous_response_id": "resp_1"}, CompactRequest).previous_response_id == "resp_1"
    assert refusal({"model": "m"}, CompactRequest).code == "missing_required_parameter"
