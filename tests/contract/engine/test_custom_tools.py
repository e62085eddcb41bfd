"""Calls of custom tools by the real engine: a model without sense still writes texts of the grammar."""

import json
import re

import pytest

from deployments.models.config import GRAMMAR_PARSERS
from deployments.models.contract.errors import RequestRejected
from serve_app.schemas.chat import ChatRequest
from serve_app.validation.body import parse_json_body
from tests.contract.engine.replies import Collected
from tests.contract.engine.test_calls import ARGUMENTS, CALLS, PARAMETERS, outputs_of, tokenizer_with

__all__ = ["tokenizer_with"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

LINES = r"""
start: "*** Begin" LF line~1..2 "*** End"
line: "+" /[^\r\n]{0,6}/ LF
%import common.LF
"""
LINES_OF = re.compile(r"\*\*\* Begin\n(\+[^\r\n]{0,6}\n){1,2}\*\*\* End")


def custom(name, syntax, definition):
    grammar = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    return {"type": "custom", "custom": {"name": name, "format": grammar}}


PATCH = custom("patch", "lark", LINES)
GO = custom("go", "regex", r'go "[a-z]{1,3}"\n')
GO_OF = re.compile(r'go "[a-z]{1,3}"\n')
OPEN = {
    "type": "function",
    "function": {
        "name": "open",
        "parameters": {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]},
    },
}


def engine_body(**fields):
    body = {"model": "m", "messages": [{"role": "user", "content": "Go."}], "max_tokens": 200, **fields}
    raw = json.dumps(body).encode()
    return parse_json_body(raw, ChatRequest).to_engine_body(raw)


@pytest.fixture
def ask(real_engine, compiler):
    from deployments.replica.chat import ChatRunner
    from deployments.replica.scheduling.preparing import Preparing

    runner = ChatRunner(real_engine.client, real_engine.serving, compiler, Preparing(), real_engine.model)

    async def ask(*, stream=False, render="wire", **fields):
        reply = Collected()
        header = {"request_id": "req_1", "stream": stream, "render": render, "cache_salt": "", "priority": 0}
        await runner.run(header, engine_body(stream=stream, **fields), reply)
        return reply

    return lambda **fields: real_engine.run(ask(**fields))


def calls_of(reply):
    (choice,) = json.loads(reply.pieces[0])["choices"]
    return [(call["type"], call[call["type"]]) for call in choice["message"].get("tool_calls", ())], choice


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["patch", "go"])
def test_a_forced_call_has_a_text_of_the_grammar(ask, name, seed):
    choice = {"type": "custom", "custom": {"name": name}}
    calls, choice = calls_of(ask(tools=[OPEN, PATCH, GO], tool_choice=choice, seed=seed, temperature=1.5))
    ((kind, call),) = calls
    assert (kind, call["name"]) == ("custom", name)
    assert (LINES_OF if name == "patch" else GO_OF).fullmatch(call["input"]), call


@pytest.mark.parametrize("seed", range(6))
def test_required_calls_have_texts_of_their_grammars_and_schemas(ask, seed):
    reply = ask(tools=[OPEN, PATCH, GO], tool_choice="required", seed=seed, temperature=1.5, parallel_tool_calls=False)
    calls, choice = calls_of(reply)
    assert (len(calls), choice["finish_reason"]) == (1, "tool_calls")
    for kind, call in calls:
        if kind == "function":
            assert isinstance(json.loads(call["arguments"])["on"], bool)
        else:
            assert {"patch": LINES_OF, "go": GO_OF}[call["name"]].fullmatch(call["input"])


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_adds_up_to_the_body(ask, seed):
    asked = {
        "tools": [PATCH],
        "tool_choice": "required",
        "seed": seed,
        "temperature": 1.0,
        "parallel_tool_calls": False,
    }
    (((_, call),), _) = calls_of(ask(**asked))
    lines = b"".join(ask(stream=True, **asked).pieces).decode().split("\n\n")[:-2]
    deltas = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines]
    pieces = [one["custom"] for delta in deltas for one in delta.get("tool_calls", ())]
    assert (pieces[0]["name"], "".join(piece["input"] for piece in pieces)) == ("patch", call["input"])
    assert len(pieces) > 3


@pytest.mark.parametrize("seed", range(3))
def test_a_call_beside_a_form_of_the_answer_is_held_too(ask, seed):
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}
    calls, choice = calls_of(ask(tools=[GO], response_format=form, seed=seed, temperature=1.5))
    if calls:
        assert all(GO_OF.fullmatch(call["input"]) for _, call in calls)
    else:
        assert isinstance(json.loads(choice["message"]["content"])["a"], bool)


def test_a_call_that_the_model_chooses_is_held(real_engine):
    """The grammar of a free answer: any text, and within a call nothing but the tool's grammar."""
    from tests.contract.schemas import walking

    held = hold(real_engine.serving, {"tools": [OPEN, GO]})
    grammar = walking.compiled_tag(held.structured_outputs.structural_tag)
    call = '<tool_call>\n{"name": "go", "arguments": %s}\n</tool_call>'
    good = json.dumps({"input": 'go "abc"\n'})
    assert walking.takes(grammar, "Any text.")
    assert walking.takes(grammar, "Look: " + call % good)
    assert not walking.takes(grammar, call % json.dumps({"input": "go home"}))
    assert not walking.takes(grammar, call % "{}")
    assert walking.takes(grammar, (call % '{"whatever": 1}').replace('"go"', '"open"'))


def hold(serving, fields, parser_class=None, tokenizer=None):
    """Return the request as the engine gets it."""
    from types import SimpleNamespace

    from deployments.replica.chat import ChatRunner, _hold_grammars
    from deployments.replica.schemas.requested import forms_to_compile, held_to

    body = json.loads(engine_body(**fields))
    stand_in = SimpleNamespace(
        online_renderer=serving.online_renderer,
        renderer=SimpleNamespace(tokenizer=tokenizer or serving.renderer.tokenizer),
        model_config=serving.model_config,
        parser_cls=parser_class or serving.parser_cls,
        _effective_chat_template_kwargs=lambda request: {},
    )
    client = SimpleNamespace(vllm_config=SimpleNamespace(model_config=serving.model_config, reasoning_config=None))
    runner = ChatRunner(client, stand_in, None, None, "m")
    header = {"render": "wire", "stream": False, "cache_salt": ""}
    held = held_to(
        body, [(form, form.text if form.form == "grammar" else schemas_of(form)) for form in forms_to_compile(body)]
    )
    request = runner._parse(header, body)
    runner._hold(header, request, held)
    _hold_grammars(request, held)
    return request


def schemas_of(form):
    return json.dumps([call["schema"] for call in json.loads(form.text)])


# The special tokens that the parser's models have beside those of the demo model, and the text of a call.
HELD = {
    "hermes": ([], '<tool_call>\n{"name": "go", "arguments": %s}\n</tool_call>'),
    "llama3_json": (["<|python_tag|>"], '{"name": "go", "parameters": %s}'),
}
assert set(HELD) == GRAMMAR_PARSERS  # What the ingress knows of them.
NOT_HELD = ["qwen3_coder", "qwen3_xml", "glm47", "pythonic"]


def parser_of(name):
    from vllm.parser.parser_manager import ParserManager

    return ParserManager.get_parser(tool_parser_name=name, reasoning_parser_name=None, enable_auto_tools=True)


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "custom", "custom": {"name": "go"}}])
@pytest.mark.parametrize("name", HELD)
def test_calls_of_json_are_held_in_every_parsers_form(real_engine, tokenizer_with, name, choice):
    from tests.contract.schemas import walking

    extra, call = HELD[name]
    fields = {"tools": [OPEN, GO], "tool_choice": choice}
    held = hold(real_engine.serving, fields, parser_of(name), tokenizer_with(extra))
    grammar = walking.compiled_tag(held.structured_outputs.structural_tag)
    assert walking.takes(grammar, call % json.dumps({"input": 'go "abc"\n'}))
    assert not walking.takes(grammar, call % json.dumps({"input": "go home"}))
    assert not walking.takes(grammar, call % json.dumps({"input": 'go "abc"\n', "on": True}))


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("name", NOT_HELD)
def test_a_form_of_calls_that_cannot_be_held_is_refused(real_engine, name, choice):
    with pytest.raises(RequestRejected) as caught:
        hold(real_engine.serving, {"tools": [OPEN, GO], "tool_choice": choice}, parser_of(name))
    assert (caught.value.param, caught.value.code) == ("tools[1].custom.format.type", "unsupported_value")
    text = {"type": "custom", "custom": {"name": "go"}}
    hold(real_engine.serving, {"tools": [OPEN, text], "tool_choice": choice}, parser_of(name))


@pytest.mark.parametrize("name", CALLS)
def test_arguments_without_the_input_are_given_as_they_are(tokenizer_with, name):
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    from deployments.replica.calls import ChoiceParser

    parser, extra, text = CALLS[name]
    tokenizer = tokenizer_with(extra)
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}
    body = {"messages": [{"role": "user", "content": "x"}], "tools": [tool]}
    request = ChatCompletionRequest.model_validate(body)
    made = ParserManager.get_parser(tool_parser_name=parser, reasoning_parser_name=None, enable_auto_tools=True)
    choice = ChoiceParser(made(tokenizer, request.tools, chat_template_kwargs={}), request, {"get_weather"})
    events = []
    for output in outputs_of(tokenizer, tokenizer.encode(text, add_special_tokens=False), "stop"):
        events += choice.parse(output.outputs[0], [1])
    assert [event.is_custom for event in events if event.kind == "tool_call"] == [True]
    said = "".join(event.text for event in events if event.kind == "tool_arguments")
    assert json.loads(said) == json.loads(ARGUMENTS)
