"""The bodies of tokenize and detokenize: a chat or a plain text, and what the engine gets of it."""

import orjson
import pytest

from serve_app.errors.api import BadRequest
from serve_app.schemas.tokenization import DetokenizeRequest, TokenizeRequest
from serve_app.validation.body import parse_json_body

MESSAGES = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
CHAT = {"model": "m", "messages": MESSAGES}
PLAIN = {"model": "m", "prompt": "Hello"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def engine_body(body):
    raw = orjson.dumps(body)
    return orjson.loads(parse_json_body(raw, TokenizeRequest).to_engine_body(raw))


def test_plain_text_reaches_the_engine_as_it_is():
    body = {**PLAIN, "add_special_tokens": False, "return_token_strs": True}
    assert engine_body(body) == body


def test_chat_reaches_the_engine_in_its_dialect():
    body = engine_body({**CHAT, "tools": [TOOL], "user": "u", "add_generation_prompt": False})
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert (body["tools"], body["add_generation_prompt"], "user" in body) == ([TOOL], False, False)


def test_effort_becomes_what_a_chat_gives_its_template():
    assert engine_body({**CHAT, "reasoning_effort": "low"})["chat_template_kwargs"] == {
        "reasoning_effort": "low",
        "enable_thinking": True,
    }
    given = {"enable_thinking": True}
    body = engine_body({**CHAT, "reasoning_effort": "none", "chat_template_kwargs": given})
    assert body["chat_template_kwargs"]["enable_thinking"] is True
    assert engine_body({**CHAT, "reasoning_effort": "none"})["chat_template_kwargs"]["enable_thinking"] is False


def test_message_that_goes_on_gets_no_generation_prompt():
    body = engine_body({**CHAT, "continue_final_message": True})
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"model": "m"}, "messages", "missing_required_parameter"),
        ({**CHAT, "prompt": "x"}, "messages", "invalid_parameter_combination"),
        ({"prompt": "x"}, "model", "missing_required_parameter"),
        ({**PLAIN, "prompt": ["x"]}, "prompt", "invalid_type"),
        ({**PLAIN, "tools": [TOOL]}, "tools", "invalid_parameter_combination"),
        ({**PLAIN, "continue_final_message": True}, "continue_final_message", "invalid_parameter_combination"),
        ({**CHAT, "messages": []}, "messages", "empty_array"),
        (
            {**CHAT, "continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
            "invalid_parameter_combination",
        ),
        ({**CHAT, "chat_template": "{{ 1 }}"}, "chat_template", "unsupported_parameter"),
        ({**CHAT, "chat_template_kwargs": {"tools": []}}, "chat_template_kwargs.tools", "unsupported_parameter"),
        (
            {**CHAT, "chat_template_kwargs": {"max_length": 9}},
            "chat_template_kwargs.max_length",
            "unsupported_parameter",
        ),
        ({**CHAT, "chat_template_kwargs": {"a": "x" * 20_000}}, "chat_template_kwargs", "object_above_max_properties"),
        ({**CHAT, "media_io_kwargs": {}}, "media_io_kwargs", "unsupported_parameter"),
        ({**CHAT, "temperature": 0}, "temperature", "unknown_parameter"),
    ],
)
def test_what_is_wrong_is_named(body, param, code):
    with pytest.raises(BadRequest) as refused:
        engine_body(body)
    assert (refused.value.param, refused.value.code) == (param, code)


@pytest.mark.parametrize(
    ("tokens", "param", "code"),
    [
        ([], "tokens", "empty_array"),
        ([1, -1], "tokens[1]", "integer_below_min_value"),
        ([2**31], "tokens[0]", "integer_above_max_value"),
        (["a"], "tokens[0]", "invalid_type"),
        ("a", "tokens", "invalid_type"),
    ],
)
def test_tokens_must_be_ids(tokens, param, code):
    with pytest.raises(BadRequest) as refused:
        parse_json_body(orjson.dumps({"model": "m", "tokens": tokens}), DetokenizeRequest)
    assert (refused.value.param, refused.value.code) == (param, code)
