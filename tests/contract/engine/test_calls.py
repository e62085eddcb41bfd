"""Tool calls through vLLM's parsers, cut at every token: whole and streamed answers say the same, to the byte."""

import json
import re
from types import SimpleNamespace

import pytest

from tests.contract.engine.replies import Collected

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
ARGUMENTS = '{"city": "São \\"Paulo\\" {1}", "days": 3}'
XML = (
    '<tool_call>\n<function=get_weather>\n<parameter=city>\nSão "Paulo" {1}\n</parameter>\n'
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)
# The parser, the special tokens that its models have beside those of the demo model, and the text of a call.
CALLS = {
    "hermes": ("hermes", [], f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>'),
    "qwen3": ("qwen3_coder", [], XML),
    "qwen3 as XML": ("qwen3_xml", [], XML),
    "llama3": ("llama3_json", ["<|python_tag|>"], f'{{"name": "get_weather", "parameters": {ARGUMENTS}}}'),
    "mistral": ("mistral", ["[TOOL_CALLS]", "[ARGS]"], f"[TOOL_CALLS]get_weather[ARGS]{ARGUMENTS}"),
    "mistral before v11": (
        "mistral",
        ["[TOOL_CALLS]"],
        f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {ARGUMENTS}}}]',
    ),
}
TWO_CALLS = {
    "hermes": CALLS["hermes"][2] + "\n" + CALLS["hermes"][2],
    "qwen3": XML + "\n" + XML,
    "llama3": CALLS["llama3"][2] + "; " + CALLS["llama3"][2],
    "mistral": CALLS["mistral"][2] * 2,
}
MARKUP = re.compile(r"tool_call|TOOL_CALLS|ARGS|function=|get_weather|arguments|parameter")


@pytest.fixture(scope="module")
def tokenizer_with():
    from transformers import AutoTokenizer

    from deployments.models.demo.sources import resolve_source

    made = {}

    def tokenizer_with(extra):
        if tuple(extra) not in made:
            tokenizer = AutoTokenizer.from_pretrained(resolve_source("demo:trained"))
            tokenizer.add_special_tokens({"additional_special_tokens": extra})
            made[tuple(extra)] = tokenizer
        return made[tuple(extra)]

    return tokenizer_with


def outputs_of(tokenizer, token_ids, reason, group=1, stop=None):
    """Return the engine's outputs for tokens: the text that each group of them adds, the last with the reason."""
    from vllm.outputs import CompletionOutput, RequestOutput

    outputs, said = [], ""
    for start in range(0, len(token_ids), group):
        end = min(start + group, len(token_ids))
        text = tokenizer.decode(token_ids[:end], skip_special_tokens=False)
        text = said if text.endswith("\ufffd") else text
        finish_reason = reason if end == len(token_ids) else None
        part = CompletionOutput(0, text[len(said) :], token_ids[start:end], None, None, finish_reason=finish_reason)
        part.stop_reason = stop if finish_reason else None
        outputs.append(RequestOutput("req_1", None, [1], None, [part], finished=finish_reason is not None))
        said = text
    return outputs


def answered(tokenizer, parser_name, outputs, *, stream, choice="auto", **more):
    """Return the content, the calls and the finish reason of an answer."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    from deployments.models.contract.render import ChatBody, ChatChunks
    from deployments.replica.chat_answer import ChatAnswer
    from deployments.replica.logprobs import TokenBytes

    body = {"messages": [{"role": "user", "content": "x"}], "tools": [TOOL], "tool_choice": choice, "stream": stream}
    body |= more
    request = ChatCompletionRequest.model_validate(body)
    parser_class = ParserManager.get_parser(
        tool_parser_name=parser_name, reasoning_parser_name=None, enable_auto_tools=True
    )
    parser = parser_class(tokenizer, request.tools, chat_template_kwargs={})
    renderer = ChatChunks("id", "m", 1, include_usage=False) if stream else ChatBody("id", "m", 1)
    reply = Collected()
    header = {"stream": stream}
    answer = ChatAnswer(SimpleNamespace(), request, renderer, reply, [parser], [1], header, TokenBytes())
    for output in outputs:
        answer.take(output)
    answer.end()
    return folded(reply.pieces) if stream else read(json.loads(reply.pieces[0])["choices"][0])


def read(choice):
    for call in choice["message"].get("tool_calls", []):
        assert call["id"].startswith("call_") or re.fullmatch("[A-Za-z0-9]{9}", call["id"])  # The other is Mistral's.
    calls = [
        (call["function"]["name"], call["function"]["arguments"]) for call in choice["message"].get("tool_calls", [])
    ]
    return choice["message"]["content"] or "", calls, choice["finish_reason"]


def folded(pieces):
    content, calls, reason = "", {}, None
    for line in b"".join(pieces).decode().split("\n\n")[:-2]:
        (choice,) = json.loads(line.removeprefix("data: "))["choices"]
        content += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls", ()):
            kept = calls.setdefault(call["index"], ["", ""])
            kept[0] += call["function"].get("name") or ""
            kept[1] += call["function"].get("arguments") or ""
        reason = choice["finish_reason"] or reason
    return content, [tuple(calls[index]) for index in sorted(calls)], reason


def both(tokenizer, name, token_ids, reason, **options):
    """Return what the whole and the streamed answer say, which is the same."""
    outputs = outputs_of(tokenizer, token_ids, reason)
    whole, streamed = (answered(tokenizer, name, outputs, stream=stream, **options) for stream in (False, True))
    assert whole == streamed
    return whole


@pytest.mark.parametrize("choice", [NAMED, "required", "auto"], ids=["named", "required", "auto"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_cut_stays_as_far_as_it_came(tokenizer_with, name, choice):
    parser, extra, text = CALLS[name]
    tokenizer = tokenizer_with(extra)
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    told = []
    for cut in range(1, len(token_ids) + 1):
        content, calls, reason = both(tokenizer, parser, token_ids[:cut], "length", choice=choice)
        assert (content, reason) == ("", "length"), cut
        assert len(calls) <= 1
        for function, arguments in calls:
            assert function == "get_weather"
            assert ARGUMENTS.startswith(arguments) or json.loads(ARGUMENTS) == json.loads(arguments)
            told.append(len(arguments))
    assert told == sorted(told)
    assert told[0] <= 2
    assert told[-1] == len(ARGUMENTS)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_whole_is_said_whole(tokenizer_with, name):
    parser, extra, text = CALLS[name]
    tokenizer = tokenizer_with(extra)
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    assert both(tokenizer, parser, token_ids, "stop") == ("", [("get_weather", ARGUMENTS)], "tool_calls")
    assert both(tokenizer, parser, token_ids, "stop", choice=NAMED)[1:] == ([("get_weather", ARGUMENTS)], "stop")


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_forbidden_is_neither_made_nor_said(tokenizer_with, name):
    parser, extra, text = CALLS[name]
    tokenizer = tokenizer_with(extra)
    for said, left in (
        (text, ""),
        ("Plain. " + text, "Plain."),
        ("Plain.", "Plain."),
        ('{"answer": 42}', '{"answer": 42}'),
    ):
        token_ids = tokenizer.encode(said, add_special_tokens=False)
        content, calls, reason = both(tokenizer, parser, token_ids, "stop", choice="none")
        is_json = parser == "llama3_json" and text in said  # It could be an answer in a form.
        assert (content.strip(), calls, reason) == (said if is_json else left, [], "stop")


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_stops_amid_itself_is_the_same_whole_and_streamed(tokenizer_with, name):
    parser, extra, text = CALLS[name]
    tokenizer = tokenizer_with(extra)
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    for cut in range(1, len(token_ids)):
        both(tokenizer, parser, token_ids[:cut], "stop")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_a_stop_string_breaks_off_is_not_said_to_be_one(tokenizer_with, name, stream):
    parser, extra, text = CALLS[name]
    tokenizer = tokenizer_with(extra)
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    reasons = []
    for cut in range(1, len(token_ids) + 1):
        outputs = outputs_of(tokenizer, token_ids[:cut], "stop", stop="x")
        _, calls, reason = answered(tokenizer, parser, outputs, stream=stream)
        assert reason == ("tool_calls" if calls and is_json(calls[-1][1]) else "stop"), cut
        reasons.append(reason)
    assert reasons.count("stop") > len(reasons) / 2
    assert reasons[-1] == "tool_calls"


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", TWO_CALLS)
def test_two_calls_are_both_said(tokenizer_with, name):
    parser, extra, _ = CALLS[name]
    tokenizer = tokenizer_with(extra)
    token_ids = tokenizer.encode(TWO_CALLS[name], add_special_tokens=False)
    content, calls, reason = both(tokenizer, parser, token_ids, "stop")
    assert (content.strip(), calls, reason) == ("", [("get_weather", ARGUMENTS)] * 2, "tool_calls")


@pytest.mark.parametrize("name", TWO_CALLS)
def test_a_second_call_is_not_said_where_one_at_a_time_was_asked_for(tokenizer_with, name):
    parser, extra, _ = CALLS[name]
    tokenizer = tokenizer_with(extra)
    token_ids = tokenizer.encode(TWO_CALLS[name], add_special_tokens=False)
    content, calls, reason = both(tokenizer, parser, token_ids, "stop", parallel_tool_calls=False)
    assert (content.strip(), calls, reason) == ("", [("get_weather", ARGUMENTS)], "tool_calls")


@pytest.mark.parametrize("group", [2, 5, 16, 1000])
@pytest.mark.parametrize("name", CALLS)
def test_lines_of_batches_whose_tokens_come_in_groups_say_the_same(tokenizer_with, name, group):
    parser, extra, text = CALLS[name]
    tokenizer = tokenizer_with(extra)
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    outputs = outputs_of(tokenizer, token_ids, "stop", group)
    assert answered(tokenizer, parser, outputs, stream=False) == ("", [("get_weather", ARGUMENTS)], "tool_calls")


MARKED = [
    "</tool_call>",
    "<tool_call></tool_call>",
    'say \\"</tool_call>\\" or \\\\</tool_call></tool_call>\\n',
    "</tool_call </tool_call",
    'a, \\"b\\": {</tool_call>}',
]


@pytest.mark.parametrize("choice", [NAMED, "required", "auto"], ids=["named", "required", "auto"])
@pytest.mark.parametrize("text", MARKED)
def test_the_end_of_a_call_in_a_string_of_its_arguments_does_not_end_it(tokenizer_with, text, choice):
    tokenizer = tokenizer_with([])
    arguments = f'{{"city": "{text}", "days": 3}}'
    call = f'<tool_call>\n{{"name": "get_weather", "arguments": {arguments}}}\n</tool_call>'
    token_ids = tokenizer.encode(call + "\n" + call, add_special_tokens=False)
    content, calls, _ = both(tokenizer, "hermes", token_ids, "stop", choice=choice)
    assert content.strip() == ""
    assert [(name, json.loads(said)) for name, said in calls] == [("get_weather", json.loads(arguments))] * 2
    for cut in range(1, len(token_ids)):
        _, begun, _ = both(tokenizer, "hermes", token_ids[:cut], "length", choice=choice)
        assert all(whole[1].startswith(part[1]) for part, whole in zip(begun, calls, strict=False))
    for group in (2, 5, 1000):
        outputs = outputs_of(tokenizer, token_ids, "stop", group)
        assert answered(tokenizer, "hermes", outputs, stream=False, choice=choice)[1] == calls


@pytest.mark.parametrize("broken", ['"a"b"}}', '"a"b"}}\n', '"a\nb}}', '"a\\"}}\n', '"a" "b}}', '"a\\'])
def test_a_call_that_is_no_json_ends_at_its_marker(tokenizer_with, broken):
    tokenizer = tokenizer_with([])
    call = f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": {broken}</tool_call>'
    token_ids = tokenizer.encode(f"{call}\n{CALLS['hermes'][2]}", add_special_tokens=False)
    _, calls, _ = both(tokenizer, "hermes", token_ids, "stop")
    (_, arguments), whole = calls
    assert arguments == f'{{"city": {broken.strip()}'
    assert whole == ("get_weather", ARGUMENTS)


TEXTS = ["It is 5 < 7", "A list: [1, 2", 'Say {"a": 1} or <tool', "Plain.", '{"answer": 42}', "["]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_calls_nothing_is_said_to_its_end(tokenizer_with, name, text):
    parser, extra, _ = CALLS[name]
    tokenizer = tokenizer_with(extra)
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    assert both(tokenizer, parser, token_ids, "stop") == (text, [], "stop")
    for cut in range(1, len(token_ids)):
        content, calls, _ = both(tokenizer, parser, token_ids[:cut], "length")
        assert calls == []
        assert text.startswith(content)
        assert not MARKUP.search(content)


@pytest.mark.parametrize("name", CALLS)
def test_a_text_before_a_call_is_said_and_the_call_is_not_a_part_of_it(tokenizer_with, name):
    parser, extra, text = CALLS[name]
    if parser == "llama3_json":
        pytest.skip("Models with this parser write a call or a text.")
    tokenizer = tokenizer_with(extra)
    token_ids = tokenizer.encode("Let me look. " + text, add_special_tokens=False)
    for cut in range(1, len(token_ids) + 1):
        content, _, _ = both(tokenizer, parser, token_ids[:cut], "length")
        assert "Let me look. ".startswith(content)
        assert not MARKUP.search(content)
    content, calls, reason = both(tokenizer, parser, token_ids, "stop")
    assert (content, calls, reason) == ("Let me look. ", [("get_weather", ARGUMENTS)], "tool_calls")
