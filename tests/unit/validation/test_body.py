"""Bytes to a typed body: the golden words of every kind of refusal, and what stays unsaid."""

import json
import threading
import time

import pytest
from pydantic import BaseModel, field_validator

from serve_app.errors.api import ApiError, BadRequest, UnparsableBody
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.completions import CompletionRequest
from serve_app.schemas.embeddings import EmbeddingRequest
from serve_app.schemas.responses.request import ResponseRequest
from serve_app.validation.body import parse_body, parse_json_body, validate_body

HI = {"role": "user", "content": "hi"}


def refuse(fields, schema=ChatRequest, base=None):
    body = {**({"model": "m", "messages": [HI]} if base is None else base), **fields}
    with pytest.raises(BadRequest) as caught:
        parse_json_body(json.dumps(body).encode(), schema)
    assert caught.value.status == 400
    assert caught.value.type == "invalid_request_error"
    return caught.value


def says(*messages):
    return {"messages": list(messages)}


def part(**fields):
    return says({"role": "user", "content": [fields]})


TOOL = {"type": "function", "function": {"name": "f"}}


def tool_with(parameters):
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


def formatted(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}


GOLDEN = [
    # Missing, unknown.
    ({"messages": []}, "empty_array", "messages", "Invalid 'messages': empty array. Expected an array with minimum "
     "length 1, but got an empty array instead."),
    (says({"content": "x"}), "missing_required_parameter", "messages[0].role",
     "Missing required parameter: 'messages[0].role'."),
    (says({"role": "user"}), "missing_required_parameter", "messages[0].content",
     "Missing required parameter: 'messages[0].content'."),
    (part(type="text"), "missing_required_parameter", "messages[0].content[0].text",
     "Missing required parameter: 'messages[0].content[0].text'."),
    ({"response_format": {"type": "json_schema"}}, "missing_required_parameter", "response_format.json_schema",
     "Missing required parameter: 'response_format.json_schema'."),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, "missing_required_parameter",
     "response_format.json_schema.schema", "Missing required parameter: 'response_format.json_schema.schema'."),
    ({"tool_choice": {"type": "function"}, "tools": [TOOL]}, "missing_required_parameter", "tool_choice.function",
     "Missing required parameter: 'tool_choice.function'."),
    ({"foo": 1}, "unknown_parameter", "foo", "Unknown parameter: 'foo'."),
    ({"temprature": 1}, "unknown_parameter", "temprature",
     "Unknown parameter: 'temprature'. Did you mean 'temperature'?"),
    ({"max_tokens": 5, "max_token": 1}, "unknown_parameter", "max_token", "Unknown parameter: 'max_token'."),
    ({"message": [HI]}, "unknown_parameter", "message", "Unknown parameter: 'message'."),
    (says({**HI, "nmae": "x"}), "unknown_parameter", "messages[0].nmae",
     "Unknown parameter: 'messages[0].nmae'. Did you mean 'name'?"),
    (says({"role": "user", "contents": "x"}), "unknown_parameter", "messages[0].contents",
     "Unknown parameter: 'messages[0].contents'. Did you mean 'content'?"),
    (says({"rol": "user", "content": "x"}), "unknown_parameter", "messages[0].rol",
     "Unknown parameter: 'messages[0].rol'. Did you mean 'role'?"),
    (part(type="image_url", image_url={"url": "data:image/png;base64,AAAA", "detial": "low"}), "unknown_parameter",
     "messages[0].content[0].image_url.detial",
     "Unknown parameter: 'messages[0].content[0].image_url.detial'. Did you mean 'detail'?"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameter": {}}}]}, "unknown_parameter",
     "tools[0].function.parameter", "Unknown parameter: 'tools[0].function.parameter'. Did you mean 'parameters'?"),
    (says({**HI, "foo": 1}), "unknown_parameter", "messages[0].foo", "Unknown parameter: 'messages[0].foo'."),
    (part(type="text", text="x", uuid="1"), "unknown_parameter", "messages[0].content[0].uuid",
     "Unknown parameter: 'messages[0].content[0].uuid'."),
    # Types.
    ({"messages": "x"}, "invalid_type", "messages",
     "Invalid type for 'messages': expected an array, but got a string instead."),
    (says("x"), "invalid_type", "messages[0]",
     "Invalid type for 'messages[0]': expected an object, but got a string instead."),
    (says({"role": "user", "content": 5}), "invalid_type", "messages[0].content",
     "Invalid type for 'messages[0].content': expected one of a string or array of objects, but got an integer "
     "instead."),
    (says({"role": "user", "content": None}), "invalid_type", "messages[0].content",
     "Invalid type for 'messages[0].content': expected one of a string or array of objects, but got null instead."),
    (says({"role": ["user"], "content": ""}), "invalid_type", "messages[0].role",
     "Invalid type for 'messages[0].role': expected one of 'system', 'developer', 'user', 'assistant', 'tool', and "
     "'function', but got an array instead."),
    (part(type="text", text={"text": "x"}), "invalid_type", "messages[0].content[0].text",
     "Invalid type for 'messages[0].content[0].text': expected a string, but got an object instead."),
    ({"temperature": "1"}, "invalid_type", "temperature",
     "Invalid type for 'temperature': expected a decimal, but got a string instead."),
    ({"temperature": True}, "invalid_type", "temperature",
     "Invalid type for 'temperature': expected a decimal, but got a boolean instead."),
    ({"n": True}, "invalid_type", "n", "Invalid type for 'n': expected an integer, but got a boolean instead."),
    ({"n": 1.5}, "invalid_type", "n", "Invalid type for 'n': expected an integer, but got a decimal number instead."),
    ({"stream": 1}, "invalid_type", "stream",
     "Invalid type for 'stream': expected a boolean, but got an integer instead."),
    ({"stop": 5}, "invalid_type", "stop",
     "Invalid type for 'stop': expected one of a string or array of strings, but got an integer instead."),
    ({"stop": ["a", 5]}, "invalid_type", "stop[1]",
     "Invalid type for 'stop[1]': expected a string, but got an integer instead."),
    ({"logit_bias": []}, "invalid_type", "logit_bias",
     "Invalid type for 'logit_bias': expected an object, but got an array instead."),
    ({"tool_choice": 5}, "invalid_type", "tool_choice",
     "Invalid type for 'tool_choice': expected one of a string or object, but got an integer instead."),
    ({"response_format": "text"}, "invalid_type", "response_format",
     "Invalid type for 'response_format': expected an object, but got a string instead."),
    ({"metadata": {"a": 1}}, "invalid_type", "metadata",
     "Invalid type in 'metadata': expected every value to be a string."),
    # Enums and patterns.
    (says({"role": "boss", "content": "x"}), "invalid_value", "messages[0].role",
     "Invalid value: 'boss'. Supported values are: 'system', 'developer', 'user', 'assistant', 'tool', and "
     "'function'."),
    ({"response_format": {"type": "xml"}}, "invalid_value", "response_format.type",
     "Invalid value: 'xml'. Supported values are: 'text', 'json_object', 'json_schema', and 'structural_tag'."),
    ({"reasoning_effort": "huge"}, "invalid_value", "reasoning_effort",
     "Invalid value: 'huge'. Supported values are: 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', and 'max'."),
    ({"prompt_cache_retention": "1h"}, "invalid_value", "prompt_cache_retention",
     "Invalid value: '1h'. Supported values are: 'in_memory' and '24h'."),
    ({"reasoning_effort": "x" * 1000}, "invalid_value", "reasoning_effort",
     f"Invalid value: '{'x' * 61}...'. Supported values are: 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', and "
     "'max'."),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "invalid_value", "tools[0].function.name",
     "Invalid 'tools[0].function.name': string does not match pattern. Expected a string that matches the pattern "
     "'^[a-zA-Z0-9_-]+$'."),
    # Ranges and lengths.
    ({"temperature": 3}, "decimal_above_max_value", "temperature",
     "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 instead."),
    ({"temperature": -0.5}, "decimal_below_min_value", "temperature",
     "Invalid 'temperature': decimal below minimum value. Expected a value >= 0, but got -0.5 instead."),
    ({"n": 0}, "integer_below_min_value", "n",
     "Invalid 'n': integer below minimum value. Expected a value >= 1, but got 0 instead."),
    ({"n": 10**9}, "integer_above_max_value", "n",
     "Invalid 'n': integer above maximum value. Expected a value <= 128, but got 1000000000 instead."),
    ({"seed": 2**63}, "integer_above_max_value", "seed",
     "Invalid 'seed': integer above maximum value. Expected a value <= 9223372036854775807, but got "
     "9223372036854775808 instead."),
    ({"seed": -(2**70)}, "integer_below_min_value", "seed",
     "Invalid 'seed': integer below minimum value. Expected a value >= -9223372036854775808, but got "
     "-1180591620717411303424 instead."),
    ({"stop": ["a"] * 5}, "array_above_max_length", "stop",
     "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length 5 "
     "instead."),
    ({"stop": "a" * 1025}, "string_above_max_length", "stop",
     "Invalid 'stop': string too long. Expected a string with maximum length 1024, but got a string with length 1025 "
     "instead."),
    ({"stop": ["a", ""]}, "empty_string", "stop[1]",
     "Invalid 'stop[1]': empty string. Expected a string with minimum length 1, but got an empty string instead."),
    ({"safety_identifier": "a" * 129}, "string_above_max_length", "safety_identifier",
     "Invalid 'safety_identifier': string too long. Expected a string with maximum length 128, but got a string with "
     "length 129 instead."),
    ({"model": ""}, "empty_string", "model",
     "Invalid 'model': empty string. Expected a string with minimum length 1, but got an empty string instead."),
    ({"logit_bias": {str(i): 1 for i in range(301)}}, "object_above_max_properties", "logit_bias",
     "Invalid 'logit_bias': too many properties. Expected an object with at most 300 properties, but got an object "
     "with 301 properties instead."),
    # Rules between fields.
    ({"top_logprobs": 5}, "invalid_value", "top_logprobs",
     "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled."),
    ({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options",
     "The 'stream_options' parameter is only allowed when 'stream' is enabled."),
    ({"max_tokens": 1, "max_completion_tokens": 1}, "invalid_parameter_combination", "max_completion_tokens",
     "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."),
    ({"tool_choice": "required"}, "invalid_value", "tool_choice",
     "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."),
    # What cannot be done.
    ({"audio": {"voice": "alloy", "format": "wav"}}, "unsupported_parameter", "audio",
     "Unsupported parameter: 'audio' is not supported with this model."),
    ({"modalities": ["text", "audio"]}, "unsupported_value", "modalities",
     "Unsupported value: 'modalities' does not support 'audio' with this model. Supported values are: 'text'."),
    (part(type="input_audio", input_audio={"data": "", "format": "wav"}), "unsupported_value",
     "messages[0].content[0].type",
     "Unsupported value: 'messages[0].content[0].type' does not support 'input_audio' with this model. Supported "
     "values are: 'text' and 'image_url'."),
    ({"tools": [{"type": "custom", "custom": {"name": "x", "format": {"type": "grammar", "grammar": {
        "syntax": "lark", "definition": "start: other"}}}}]}, "invalid_value",
     "tools[0].custom.format.grammar.definition",
     "Invalid value for 'tools[0].custom.format.grammar.definition': it is read as a grammar of Lark, and the rule "
     "'other' is nowhere."),
    ({"tools": [{"type": "custom", "custom": {"name": f"x{n}", "format": {"type": "grammar", "grammar": {
        "syntax": "lark", "definition": "start: " + '"a" ' * 4_000}}}} for n in range(3)]}, "string_above_max_length",
     "tools[2].custom.format.grammar.definition",
     "Invalid 'tools[2].custom.format.grammar.definition': the grammars of a request may have 40,000 characters "
     "together. Send shorter or fewer ones."),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "code", "param", "message"), GOLDEN, ids=range(len(GOLDEN)))
def test_refusal_reads_as_recorded(fields, code, param, message):
    error = refuse(fields)
    assert error.to_wire() == {
        "error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    }


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_missing_parameter_is_named(missing):
    error = refuse(
        {}, base={name: value for name, value in {"model": "m", "messages": [HI]}.items() if name != missing}
    )
    assert error.message == f"Missing required parameter: '{missing}'."


@pytest.mark.parametrize(
    ("schema", "body", "message"),
    [
        (ChatRequest, {"model": "m", "mesages": [HI]}, "Unknown parameter: 'mesages'. Did you mean 'messages'?"),
        (ChatRequest, {"modle": "m", "messages": [HI]}, "Unknown parameter: 'modle'. Did you mean 'model'?"),
        (ChatRequest, {"model": "m", "foo": 1}, "Missing required parameter: 'messages'."),
        (CompletionRequest, {"model": "m", "promt": "x"}, "Unknown parameter: 'promt'. Did you mean 'prompt'?"),
        (EmbeddingRequest, {"model": "m", "inputs": "x"}, "Unknown parameter: 'inputs'. Did you mean 'input'?"),
        (ResponseRequest, {"model": "m", "inptu": "x"}, "Unknown parameter: 'inptu'. Did you mean 'input'?"),
    ],
)
def test_a_misspelt_field_is_named_before_the_one_that_is_missing(schema, body, message):
    assert refuse({}, schema, body).message == message


def test_no_field_that_is_always_refused_is_suggested():
    refused = [
        name for name, field in ResponseRequest.model_fields.items() if field.json_schema_extra == {"refused": True}
    ]
    assert refused
    for name in refused:
        assert f"'{name}'?" not in refuse({f"{name}x": 1}, ResponseRequest, {"model": "m", "input": "x"}).message


def test_thousands_of_unknown_fields_cost_little():
    body = {"model": "m", **{f"mesage{n}" * 8: n for n in range(50_000)}}
    started = time.process_time()
    assert refuse({}, ChatRequest, body).message == "Missing required parameter: 'messages'."
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "name",
    ["logits_processors", "data_parallel_rank", "trace_decode_token_ids", "skip_reading_prefix_cache", "extra_args",
     "__class__", "model_config"],
)  # fmt: skip
def test_engine_private_field_is_unknown(name):
    error = refuse({name: None})
    assert (error.code, error.param) == ("unknown_parameter", name)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "Missing required parameter: 'input'."),
        (5, "Invalid type for 'input': expected one of a string or array, but got an integer instead."),
        ("", "Invalid 'input': empty string."),
        ([], "Invalid 'input': empty array."),
        (["a", ""], "Invalid 'input[1]': empty string."),
        (["a", 1], "Invalid type for 'input[1]': expected a string, but got an integer instead."),
        ([1, True], "Invalid type for 'input[1]': expected an integer."),
        ([1, 2**31], "Invalid 'input[1]': integer above maximum value."),
        ([[1], []], "Invalid 'input[1]': empty array."),
        ([[1], [-1]], "Invalid 'input[1][0]': integer below minimum value."),
        ([[1], "a"], "Invalid type for 'input[1]': expected an array, but got a string instead."),
        (["a"] * 2049, "Invalid 'input': array too long. Expected an array with maximum length 2048"),
        ([1] * 300_001, "Invalid 'input': too many tokens."),
    ],
)
def test_embedding_input_is_refused_with_its_path(value, message):
    fields = {} if value is None else {"input": value}
    assert refuse(fields, EmbeddingRequest, {"model": "m"}).message.startswith(message)


@pytest.mark.parametrize("raw", [b"[]", b'"x"', b"1", b"null", b"", b"{", b'{"a":NaN}'])
def test_body_that_is_no_object_is_unparsable(raw):
    with pytest.raises(UnparsableBody) as caught:
        parse_json_body(raw, ChatRequest)
    assert caught.value.to_wire()["error"]["code"] is None
    assert caught.value.message.startswith("We could not parse the JSON body of your request. ")


def test_object_that_was_parsed_already_is_validated():
    assert validate_body({"model": "m", "messages": [HI]}, ChatRequest).model == "m"
    with pytest.raises(BadRequest):
        validate_body({"model": "m"}, ChatRequest)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"?top": ["a"]}, "?top"),
        ({"?string": 1}, "?string"),
        ({"metadata": {"?string": 1}}, "metadata"),
        ({"metadata": {"?": {}}}, "metadata"),
        ({"logit_bias": {"?object": 1}}, "logit_bias"),
        ({"messages": [{**HI, "?string": 1}]}, "messages[0].?string"),
        (part(type="text", text="x", **{"?array": 1}), "messages[0].content[0].?array"),
        ({"stop": {"?string": 1}}, "stop"),
    ],
)
def test_a_name_that_looks_like_a_label_of_our_own_is_a_name(fields, param):
    with pytest.raises(BadRequest) as caught:
        parse_json_body(json.dumps({"model": "m", "messages": [HI], **fields}).encode(), ChatRequest)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "messages": [HI], **{f"k{i}": 1 for i in range(5_000)}},
        {**{f"k{i}": 1 for i in range(5_000)}, "model": "m", "messages": [HI]},
        {"model": "m", "messages": [{**HI, **{f"k{i}": [{}] for i in range(5_000)}}]},
        {"model": "m", **part(type="text", text="x", **dict.fromkeys([f"k{i}" for i in range(5_000)]))},
    ],
)  # fmt: skip
def test_one_of_thousands_of_unknown_parameters_is_named(body):
    with pytest.raises(BadRequest) as caught:
        parse_json_body(json.dumps(body).encode(), ChatRequest)
    assert caught.value.code == "unknown_parameter"


def test_fault_behind_thousands_of_unknown_parameters_does_not_hide_them():
    body = {**{f"k{i}": 1 for i in range(5_000)}, "model": 5}
    with pytest.raises(BadRequest) as caught:
        parse_json_body(json.dumps(body).encode(), ChatRequest)
    assert caught.value.status == 400


CANARY = "kingfisher-7f3a"


@pytest.mark.parametrize(
    "fields",
    [
        says({"role": "user", "content": CANARY, "x": 1}),
        says({"role": "user", "content": [{"type": "text", "text": [CANARY]}]}),
        says({"role": "user", "content": {"text": CANARY}}),
        says({"role": "tool", "content": CANARY, "tool_call_id": "x"}),
        says({"role": "assistant", "content": [{"type": "text", "text": CANARY, "y": 1}]}),
        part(type="image_url", image_url={"url": f"http://10.0.0.1/{CANARY}"}),
        {"temperature": CANARY},
        {"stop": [CANARY] * 5},
        {"metadata": {CANARY: 5}},
        {"user": [CANARY]},
        formatted({"properties": [CANARY]}),
    ],
)
def test_refusal_repeats_no_content(fields):
    assert CANARY not in json.dumps(refuse(fields).to_wire())


HOSTILE = {
    "n of a billion": {"n": 10**9},
    "huge stop": {"stop": ["x" * 1_000_000] * 4},
    "many stops": {"stop": ["x"] * 100_000},
    "huge logit_bias": {"logit_bias": {str(i): 1 for i in range(50_000)}},
    "huge metadata": {"metadata": {str(i): "x" for i in range(50_000)}},
    "many tools": {"tools": [TOOL] * 20_000},
    "many bad messages": says(*[{"role": "boss"}] * 20_000),
    "many unknown fields": {f"k{i}": 1 for i in range(20_000)},
    "deep messages": {"messages": json.loads("[" * 900 + "]" * 900)},
    "private image": part(type="image_url", image_url={"url": "http://169.254.169.254/latest/meta-data"}),
    "file image": part(type="image_url", image_url={"url": "file:///etc/passwd"}),
    "svg image": part(type="image_url", image_url={"url": "data:image/svg+xml;base64,AAAA"}),
    "deep schema": formatted(json.loads('{"not":' * 40 + "{}" + "}" * 40)),
    "repetition": formatted({"type": "array", "items": {"type": "string"}, "minItems": 10**9}),
    "enum": formatted({"enum": [f"{i}" * 20 for i in range(2_000)]}),
    "pattern": formatted({"type": "string", "pattern": "(((a{99}){99}){99}){99}"}),
    "remote schema": formatted({"$ref": "http://10.0.0.1/schema"}),
    "tool schema": {
        "tools": [tool_with({"type": "object", "properties": {f"p{i}": {} for i in range(6_000)}})],
        "tool_choice": "required",
    },
    "tool schema that nothing holds": {"tools": [tool_with({"type": "object", "description": "x" * 300_000})]},
}  # fmt: skip


@pytest.mark.parametrize("fields", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_body_is_refused_cheaply(fields):
    raw = json.dumps({"model": "m", "messages": [HI], **fields}).encode()
    times_s = []
    for _ in range(3):  # A collection of garbage may fall into one of them.
        started = time.process_time()
        with pytest.raises(ApiError) as caught:
            parse_json_body(raw, ChatRequest)
        times_s.append(time.process_time() - started)
    assert min(times_s) < 0.1
    assert caught.value.status == 400


async def test_a_large_body_is_parsed_beside_the_event_loop():
    class Noting(BaseModel):
        text: str

        @field_validator("text")
        @classmethod
        def note(cls, text: str) -> str:
            threads.append(threading.current_thread())
            return text

    threads: list[threading.Thread] = []
    for num_bytes in (10, 2_000_000):
        await parse_body(json.dumps({"text": "a" * num_bytes}).encode(), Noting)
    assert threads[0] is threading.main_thread() is not threads[1]
    with pytest.raises(UnparsableBody):
        await parse_body(b'{"text":[' + b"0," * 3_000_000 + b"0]}", Noting)


@pytest.mark.parametrize(
    ("schema", "body", "param", "route"),
    [
        (ChatRequest, {"input": "hi"}, "input", "/v1/responses"),
        (ChatRequest, {"input": [HI], "tools": "anything"}, "input", "/v1/responses"),
        (ChatRequest, {"prompt": "hi"}, "prompt", "/v1/completions"),
        (ResponseRequest, {"messages": [HI]}, "messages", "/v1/chat/completions"),
        (CompletionRequest, {"messages": [HI]}, "messages", "/v1/chat/completions"),
        (CompletionRequest, {"input": "hi"}, "input", "/v1/responses"),
    ],
)
def test_a_body_for_another_route_is_told_where_it_belongs(schema, body, param, route):
    error = refuse(body, schema, {"model": "m"})
    assert (error.param, error.code) == (param, "unknown_parameter")
    assert f"This is a request for {route}" in error.message


def test_a_body_that_has_its_own_prompt_is_not_sent_elsewhere():
    assert refuse({"input": "hi"}).message == "Unknown parameter: 'input'."
    assert refuse({"messages": [HI]}, ResponseRequest, {"model": "m", "input": "hi"}).param == "messages"
    assert refuse({"input": {"a": 1}}, base={"model": "m"}).param == "messages"
    assert refuse({"prompt": {"id": "p"}}, ResponseRequest, {"model": "m"}).code == "unsupported_parameter"
