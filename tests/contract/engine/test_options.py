"""vLLM's own options through the real engine: what each of them changes in the answer."""

import inspect
import json
import logging
import re
import time

import pytest

from deployments.models.contract.errors import RequestRejected
from deployments.replica.schemas.budget import SchemaCompiler, Verdict
from deployments.replica.schemas.process import OK
from serve_app.schemas.lark import lark_to_ebnf
from tests.contract.engine.replies import Collected

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

HELLO = [{"role": "user", "content": "hello there"}]


def asker(engine, compiler, **options):
    """Return what asks an engine for a chat, and returns the body or the chunks of the answer."""
    from deployments.replica.chat import ChatRunner
    from deployments.replica.scheduling.preparing import Preparing

    runner = ChatRunner(engine.client, engine.serving, compiler, Preparing(), engine.model, **options)

    def ask(*, stream=False, priority=0, salt="", **fields):
        reply = Collected()
        header = {"request_id": "req_1", "stream": stream, "render": "wire", "cache_salt": salt, "priority": priority}
        body = {"messages": HELLO, "temperature": 0, "max_tokens": 12, **fields}
        engine.run(runner.run(header, json.dumps(body).encode(), reply))
        whole = b"".join(reply.pieces)
        return chunks_of(whole) if stream else json.loads(whole)

    return ask


def chunks_of(data: bytes) -> list:
    lines = [line.removeprefix("data: ") for line in data.decode().split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def ask(real_engine, compiler):
    return asker(real_engine, compiler)


@pytest.fixture(scope="module")
def compiler_trained(trained_engine):
    compiler = SchemaCompiler(any_whitespace=False)  # In the loop of its engine.
    yield compiler
    trained_engine.run(compiler.aclose())


@pytest.fixture(scope="module")
def ask_trained(trained_engine, compiler_trained):
    return asker(trained_engine, compiler_trained)


@pytest.fixture(scope="module")
def complete_trained(trained_engine, compiler_trained):
    """It asks for completions of a model that can think."""
    return completer(trained_engine, compiler_trained)


def completer(engine, compiler):
    """Return what asks an engine for a completion, and returns the body or the chunks of the answer."""
    from deployments.replica.completions import CompletionRunner
    from deployments.replica.scheduling.preparing import Preparing

    runner = CompletionRunner(engine.completions, compiler, Preparing(), engine.model)

    def complete(*, stream=False, priority=0, salt="", **fields):
        reply = Collected()
        header = {"request_id": "req_1", "stream": stream, "cache_salt": salt, "priority": priority}
        body = {"prompt": "hello there", "temperature": 0, "max_tokens": 8, **fields}
        engine.run(runner.run(header, json.dumps(body).encode(), reply))
        whole = b"".join(reply.pieces)
        return chunks_of(whole) if stream else json.loads(whole)

    return complete


@pytest.fixture(scope="module")
def complete(real_engine, compiler):
    return completer(real_engine, compiler)


def tokens(answer) -> list[int]:
    return answer["choices"][0]["token_ids"]


def text(answer) -> str:
    return answer["choices"][0]["message"]["content"]


def reason(answer) -> str:
    return answer["choices"][0]["finish_reason"]


@pytest.fixture(scope="module")
def greedy(ask):
    """The tokens that the model always writes when it takes the likeliest."""
    return tokens(ask(return_token_ids=True))


@pytest.mark.parametrize("option", [{"top_k": 1}, {"min_p": 1.0}])
def test_sampling_among_the_likeliest_alone_is_greedy(ask, greedy, option):
    hot = {"temperature": 2.0, "seed": 3, "return_token_ids": True}
    assert tokens(ask(**hot)) != greedy
    assert tokens(ask(**hot, **option)) == greedy


@pytest.mark.parametrize("off", [{"top_k": -1}, {"top_k": 0}, {"min_p": 0}, {"repetition_penalty": 1.0}])
def test_a_value_that_turns_an_option_off_changes_nothing(ask, off):
    hot = {"temperature": 2.0, "seed": 3, "return_token_ids": True}
    assert tokens(ask(**hot, **off)) == tokens(ask(**hot))


def test_a_repetition_penalty_keeps_tokens_from_coming_again(ask):
    alone = {"allowed_token_ids": list(range(40, 56)), "max_tokens": 16, "return_token_ids": True}
    free, penalized = tokens(ask(**alone)), tokens(ask(**alone, repetition_penalty=100.0))
    assert len(set(free)) < 16 == len(set(penalized))


def test_the_bounds_of_a_repetition_penalty_are_numbers_that_the_engine_can_hold(ask):
    for penalty in (0.01, 100.0):
        answer = ask(repetition_penalty=penalty, logprobs=True, temperature=1.0, seed=1)
        assert all(-10_000 < token["logprob"] <= 0 for token in answer["choices"][0]["logprobs"]["content"])


def test_an_answer_stops_at_a_token_and_not_before_its_least_length(ask, greedy):
    stop = greedy[3]
    first = greedy.index(stop)
    stopped = ask(stop_token_ids=[stop], return_token_ids=True)
    assert (tokens(stopped), reason(stopped)) == (greedy[: first + 1], "stop")
    assert stopped["usage"]["completion_tokens"] == first + 1
    longer = ask(stop_token_ids=[stop], min_tokens=9, return_token_ids=True)
    assert stop not in tokens(longer)[:9]
    assert len(tokens(longer)) >= 9


@pytest.mark.parametrize("least", [5000, 2**31 - 1])
def test_more_tokens_than_the_context_leaves_are_refused_by_name(ask, least):
    with pytest.raises(RequestRejected) as caught:
        ask(min_tokens=least, max_tokens=None)
    assert caught.value.param == "min_tokens"


def test_an_answer_goes_on_past_its_end_where_that_is_ignored(ask_trained):
    question = [{"role": "user", "content": "Who are you?"}]
    ended = ask_trained(messages=question, max_tokens=60)
    assert reason(ended) == "stop"
    longer = ask_trained(messages=question, max_tokens=60, ignore_eos=True)
    assert (reason(longer), longer["usage"]["completion_tokens"]) == ("length", 60)


def test_a_stop_string_is_shown_where_it_is_wanted(ask):
    whole = text(ask())
    stop = whole.split()[2]
    assert not text(ask(stop=[stop])).endswith(stop)
    assert text(ask(stop=[stop], include_stop_str_in_output=True)).endswith(stop)


@pytest.mark.parametrize(("prompt", "stream"), [("x", False), ("x</think>", True), (["x", "y"], False)])
@pytest.mark.parametrize(
    ("form", "kept"),
    [
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
        ({"structured_outputs": {"regex": "[ab]{3}"}}, "[ab]{3}"),
        ({"structured_outputs": {"json": {"enum": [1, 2]}}}, "[12]"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": 7}}}}, "7"),
        ({"response_format": {"type": "json_object"}, "max_tokens": 60}, r"\{.*"),
    ],
    ids=["choice", "regex", "json", "json_schema", "json_object"],
)
def test_a_completion_of_a_model_that_can_think_keeps_its_form(complete_trained, form, kept, prompt, stream):
    answer = complete_trained(prompt=prompt, stream=stream, **{"max_tokens": 12, **form})
    texts = {}
    for choice in (choice for body in (answer if stream else [answer]) for choice in body["choices"]):
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    assert len(texts) == (2 if isinstance(prompt, list) else 1)
    assert all(re.fullmatch(kept, text, re.DOTALL) for text in texts.values()), texts


def test_a_bad_word_is_never_written(ask):
    word = text(ask()).split()[1]
    assert word not in text(ask(bad_words=[word])).split()


def test_a_bad_word_that_the_model_never_writes_is_refused(real_engine, ask, monkeypatch):
    last = max(real_engine.serving.renderer.tokenizer.encode("demo", add_special_tokens=False))
    config = type(real_engine.client.model_config)
    monkeypatch.setattr(config, "get_vocab_size", lambda _: last + 1)
    ask(bad_words=["demo"])
    monkeypatch.setattr(config, "get_vocab_size", lambda _: last)
    with pytest.raises(RequestRejected) as caught:
        ask(bad_words=["demo"])
    assert (caught.value.param, caught.value.code) == ("bad_words", "invalid_value")


def test_only_allowed_tokens_are_written(ask, greedy):
    allowed = [greedy[0], greedy[1] + 1, greedy[2] + 1]
    assert set(tokens(ask(allowed_token_ids=allowed, return_token_ids=True))) <= set(allowed)


@pytest.mark.parametrize("name", ["stop_token_ids", "allowed_token_ids", "logprob_token_ids"])
def test_a_token_that_the_model_does_not_have_is_refused_by_name(ask, name):
    with pytest.raises(RequestRejected) as caught:
        ask(logprobs=True, **{name: [10**9]})
    assert caught.value.param == name
    assert len(caught.value.message) <= 300


def test_special_tokens_are_shown_and_set_apart_as_asked(real_engine, ask):
    special = real_engine.serving.renderer.tokenizer.eos_token_id
    name = real_engine.serving.renderer.tokenizer.decode([special])
    alone = {"allowed_token_ids": [special], "ignore_eos": True, "max_tokens": 3}
    assert text(ask(**alone)) == ""
    assert text(ask(**alone, skip_special_tokens=False, spaces_between_special_tokens=False)) == name * 3
    assert text(ask(**alone, skip_special_tokens=False)).split() != []


def test_an_answer_that_repeats_itself_is_ended(ask, greedy):
    alone = {"allowed_token_ids": [greedy[0]], "max_tokens": 30}
    assert ask(**alone)["usage"]["completion_tokens"] == 30
    ended = ask(**alone, repetition_detection={"max_pattern_size": 1, "min_count": 4})
    assert (ended["usage"]["completion_tokens"], reason(ended)) == (4, "stop")


@pytest.mark.parametrize(("side", "kept"), [("left", slice(-6, None)), ("right", slice(0, 6)), (None, None)])
def test_a_prompt_is_truncated_from_the_side_that_is_named(ask, side, kept):
    whole = ask(return_token_ids=True)
    option = {} if side is None else {"truncation_side": side}
    cut = ask(truncate_prompt_tokens=6, return_token_ids=True, **option)
    assert len(cut["prompt_token_ids"]) == cut["usage"]["prompt_tokens"] == 6 < whole["usage"]["prompt_tokens"]
    if kept is not None:
        assert cut["prompt_token_ids"] == whole["prompt_token_ids"][kept]


def test_a_prompt_that_is_too_long_fits_when_it_is_truncated_to_the_context(ask):
    long = [{"role": "user", "content": "hello " * 3000}]
    with pytest.raises(RequestRejected):
        ask(messages=long)
    assert ask(messages=long, truncate_prompt_tokens=-1)["usage"]["prompt_tokens"] == 1024 - 12
    assert ask(messages=long, truncate_prompt_tokens=-1, max_tokens=None)["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("side", ["left", "right", None])
def test_a_text_that_is_truncated_is_cut_before_it_becomes_tokens(real_engine, monkeypatch, side):
    renderer = real_engine.serving.renderer
    params = renderer.default_cmpl_tok_params.with_kwargs(truncate_prompt_tokens=-1, truncation_side=side)

    def render(is_alone=False):
        prompt = {"prompt": " ".join(map(str, range(100_000)))}
        if is_alone:
            return real_engine.run(renderer._tokenize_singleton_prompt_async(prompt, params))
        return renderer._tokenize_singleton_prompt(prompt, params)

    cut = render()
    assert len(cut["prompt"]) <= 64 * params.max_input_tokens
    assert render(is_alone=True) == cut
    monkeypatch.setattr("deployments.replica.renderers.CHARS_PER_TOKEN", 10**6)
    assert render()["prompt_token_ids"] == cut["prompt_token_ids"]


def test_tokens_are_returned_with_the_text_that_they_make(real_engine, ask):
    decode = real_engine.serving.renderer.tokenizer.decode
    whole = ask(return_token_ids=True)
    assert decode(tokens(whole)) == text(whole)
    assert "hello there" in decode(whole["prompt_token_ids"])
    chunks = ask(return_token_ids=True, stream=True)
    assert chunks[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert all("prompt_token_ids" not in chunk for chunk in chunks[1:])
    assert [token for chunk in chunks for token in chunk["choices"][0].get("token_ids", [])] == tokens(whole)
    assert "token_ids" not in ask()["choices"][0]


def test_tokens_are_named_by_their_numbers(ask, greedy):
    shown = ask(logprobs=True, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]["content"]
    assert [token["token"] for token in shown] == [f"token_id:{token}" for token in greedy]


def test_chosen_tokens_have_their_log_probabilities(ask, greedy):
    chosen = [greedy[0] + 1, greedy[0] + 2]
    answer = ask(logprobs=True, logprob_token_ids=chosen, return_tokens_as_token_ids=True)
    for token in answer["choices"][0]["logprobs"]["content"]:
        assert {f"token_id:{token_id}" for token_id in chosen} <= {top["token"] for top in token["top_logprobs"]}


def logprobs_of(answer):
    """Return the entries of one choice, of a whole answer or of chunks."""
    choices = [one["choices"][0] for one in (answer if isinstance(answer, list) else [answer])]
    return [token for choice in choices for token in (choice["logprobs"] or {}).get("content", ())]


@pytest.mark.parametrize("stream", [False, True])
def test_each_token_has_its_own_bytes_also_where_it_is_a_part_of_a_character(ask, stream):
    asked = {"structured_outputs": {"choice": ["é😀"]}, "logprobs": True, "top_logprobs": 2, "stream": stream}
    tokens = logprobs_of(ask(**asked, max_tokens=20))
    assert len(tokens) >= 6
    assert bytes(byte for token in tokens for byte in token["bytes"]) == "é😀".encode()
    assert "".join(token["token"] for token in tokens) == "é😀"
    assert all(other["bytes"] for token in tokens for other in token["top_logprobs"])
    cut = logprobs_of(ask(**asked, max_tokens=4))
    assert [token["bytes"] for token in cut] == [token["bytes"] for token in tokens[:4]]


@pytest.mark.parametrize("stream", [False, True])
def test_the_token_that_ends_an_answer_has_no_log_probability(ask_trained, stream):
    asked = {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 60, "logprobs": True}
    answer = ask_trained(**asked)
    assert reason(answer) == "stop"
    tokens = logprobs_of(ask_trained(**asked, stream=stream))
    assert "".join(token["token"] for token in tokens) == text(answer)
    assert len(tokens) == answer["usage"]["completion_tokens"] - 1


def test_the_log_probabilities_of_a_prompt_are_shown(ask):
    answer = ask(prompt_logprobs=2, return_token_ids=True)
    first, *others = answer["prompt_logprobs"]
    assert first is None
    assert len(others) == len(answer["prompt_token_ids"]) - 1
    for token_id, shown in zip(answer["prompt_token_ids"][1:], others, strict=True):
        assert 2 <= len(shown) <= 3
        assert shown[str(token_id)]["logprob"] <= 0
        assert min(one["rank"] for one in shown.values()) == 1


def test_log_probabilities_of_a_long_prompt_are_refused_by_name():
    from deployments.replica.refusals import check_prompt_logprobs

    check_prompt_logprobs(None, 10**6)
    check_prompt_logprobs(20, 2048)
    with pytest.raises(RequestRejected) as caught:
        check_prompt_logprobs(0, 2049)
    assert caught.value.param == "prompt_logprobs"


def test_the_text_of_the_prompt_is_shown(ask):
    shown = ask(return_prompt_text=True)["prompt_text"]
    assert "hello there" in shown
    assert ask(return_prompt_text=True, stream=True)[0]["prompt_text"] == shown


BEGUN = [*HELLO, {"role": "assistant", "content": "Once upon"}]


def test_a_message_is_continued_and_echoed(ask):
    answer = ask(messages=BEGUN, continue_final_message=True, return_prompt_text=True)
    assert answer["prompt_text"].endswith("Once upon")
    echoed = {"messages": BEGUN, "continue_final_message": True, "add_generation_prompt": False, "echo": True}
    assert text(ask(**echoed)) == "Once upon" + text(answer)
    chunks = ask(**echoed, stream=True)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Once upon" + text(answer)


def test_a_prompt_does_not_ask_for_an_answer_where_that_is_off(ask):
    asking, not_asking = (
        ask(add_generation_prompt=wanted, return_prompt_text=True)["prompt_text"] for wanted in (True, False)
    )
    assert asking.startswith(not_asking)
    assert len(asking) > len(not_asking)


@pytest.mark.parametrize("stream", [False, True])
def test_tools_that_may_not_be_called_are_neither_in_the_prompt_nor_in_the_answer(ask_trained, stream):
    function = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    asked = {
        "messages": [{"role": "user", "content": "What is the weather in Tallinn?"}],
        "tools": [{"type": "function", "function": function}],
        "max_tokens": 60,
        "return_prompt_text": True,
    }
    assert "get_weather" in ask_trained(**asked)["prompt_text"]
    answer = ask_trained(**asked, tool_choice="none", stream=stream)
    first = answer[0] if stream else answer
    assert "get_weather" not in first["prompt_text"]
    messages = [chunk["choices"][0]["delta"] for chunk in answer] if stream else [answer["choices"][0]["message"]]
    content = "".join(message.get("content") or "" for message in messages)
    assert content
    assert "tool_call" not in content
    assert not any(message.get("tool_calls") for message in messages)


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SAID = {
    "type": "object",
    "properties": {"sure": {"type": "boolean"}, "kind": {"enum": ["greeting", "other"]}},
    "required": ["sure", "kind"],
    "additionalProperties": False,
}
BESIDE_TOOLS = {
    "json_schema": ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SAID}}}, None),
    "json": ({"structured_outputs": {"json": SAID}}, None),
    "regex": ({"structured_outputs": {"regex": "I[a-z ]{1,9}"}}, "I[a-z ]{1,9}"),
    "choice": ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
    "grammar": ({"structured_outputs": {"grammar": 'root ::= "yes" | "no"'}}, "yes|no"),
}


@pytest.mark.parametrize(
    ("name", "strict", "stream"),
    [*((name, None, False) for name in BESIDE_TOOLS), ("json_schema", True, False), ("json_schema", None, True)],
)
def test_an_answer_is_in_its_form_or_a_call_where_there_are_both(ask_trained, name, strict, stream):
    form, kept = BESIDE_TOOLS[name]
    function = {"name": "get_weather", "parameters": {**CITY, "additionalProperties": False}}
    function |= {"strict": True} if strict else {}
    tools = [{"type": "function", "function": function}]

    def answered(question):
        messages = [{"role": "user", "content": question}]
        answer = ask_trained(messages=messages, tools=tools, max_tokens=80, stream=stream, **form)
        choices = [chunk["choices"][0] for chunk in answer] if stream else answer["choices"]
        parts = [choice["delta" if stream else "message"] for choice in choices]
        content = "".join(part.get("content") or "" for part in parts)
        calls = [call["function"] for part in parts for call in part.get("tool_calls") or ()]
        return content, "".join(call.get("arguments") or "" for call in calls), choices[-1]["finish_reason"]

    content, arguments, ended = answered("What is the weather in Tallinn?")
    assert (content, ended) == ("", "tool_calls")
    assert set(json.loads(arguments)) == {"city"}
    content, arguments, ended = answered("Hello!")  # Which no tool is needed for.
    assert (arguments, ended) == ("", "stop")
    if kept is not None:
        assert re.fullmatch(kept, content)
    else:
        said = json.loads(content)
        assert set(said) == {"sure", "kind"}
        assert said["kind"] in ("greeting", "other")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("form", [{"tool_choice": "required"}, BESIDE_TOOLS["json_schema"][0], {}])
def test_as_many_tools_are_called_as_without_a_form(ask_trained, form, stream):
    function = {"name": "get_weather", "parameters": {**CITY, "additionalProperties": False}}
    messages = [{"role": "user", "content": "What is the weather in Tallinn and Kyoto?"}]
    tools = [{"type": "function", "function": function}]
    answer = ask_trained(messages=messages, tools=tools, max_tokens=200, stream=stream, **form)
    choices = [chunk["choices"][0] for chunk in answer] if stream else answer["choices"]
    parts = [choice["delta" if stream else "message"] for choice in choices]
    calls = [call["function"] for part in parts for call in part.get("tool_calls") or ()]
    arguments = "".join(call.get("arguments") or "" for call in calls)
    assert [call["name"] for call in calls if call.get("name")] == ["get_weather"] * 2
    assert all(city in arguments for city in ("Tallinn", "Kyoto"))
    assert not "".join(part.get("content") or "" for part in parts).strip()


GREETED = [{"role": "user", "content": "Hello!"}]
LOOKED_UP = [
    {"role": "user", "content": "What is the weather in Tallinn?"},
    {
        "role": "assistant",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Tallinn"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "It rains, 9 degrees."},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("messages", [GREETED, LOOKED_UP], ids=["greeted", "looked up"])
def test_no_tool_is_called_by_chance_where_the_answer_has_a_form(ask_trained, messages, stream):
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]
    form, _ = BESIDE_TOOLS["json_schema"]
    for seed in range(5):
        answer = ask_trained(messages=messages, tools=tools, max_tokens=80, stream=stream, seed=seed, **form)
        choices = [chunk["choices"][0] for chunk in answer] if stream else answer["choices"]
        parts = [choice["delta" if stream else "message"] for choice in choices]
        assert not any(part.get("tool_calls") for part in parts)
        assert set(json.loads("".join(part.get("content") or "" for part in parts))) == {"sure", "kind"}


def test_a_template_gets_its_arguments_and_ignores_others(ask_trained):
    question = [{"role": "user", "content": "What is 7 + 8?"}]
    plain = ask_trained(messages=question, max_tokens=100)
    thinking = ask_trained(messages=question, max_tokens=100, chat_template_kwargs={"enable_thinking": True, "x": 1})
    assert "reasoning_content" not in plain["choices"][0]["message"]
    thought = thinking["choices"][0]["message"]
    assert thought["reasoning_content"] == thought["reasoning"] != ""


@pytest.mark.parametrize("name", ["self", "tokenizer", "model_config", "kwargs", "return_offsets", "__class__", ""])
def test_an_argument_that_no_template_names_changes_nothing(ask, ask_trained, name):
    for either in (ask, ask_trained):
        plain = either(max_tokens=8)
        assert text(either(max_tokens=8, chat_template_kwargs={name: 1})) == text(plain)


def test_thoughts_are_hidden_and_still_counted(ask_trained):
    question = {"messages": [{"role": "user", "content": "What is 7 + 8?"}], "reasoning_effort": "low"}
    shown = ask_trained(**question, max_tokens=100)
    hidden = ask_trained(**question, max_tokens=100, include_reasoning=False, return_token_ids=True, logprobs=True)
    assert shown["choices"][0]["message"]["reasoning_content"]
    assert "reasoning_content" not in hidden["choices"][0]["message"]
    assert text(hidden) == text(shown)
    assert hidden["usage"] == shown["usage"]
    assert "token_ids" not in hidden["choices"][0]
    assert hidden["choices"][0]["logprobs"] is None


def test_text_that_looks_like_a_call_is_text_where_there_are_no_tools(ask_trained):
    for stream in (False, True):
        answer = ask_trained(structured_outputs={"regex": "Write <tool_call> to call"}, max_tokens=60, stream=stream)
        choices = [chunk["choices"][0] for chunk in answer] if stream else answer["choices"]
        said = "".join(choice["delta" if stream else "message"].get("content") or "" for choice in choices)
        assert said == "Write <tool_call> to call"


def test_usage_says_what_was_cached_before_the_first_token_was_looked_at(ask_trained):
    fields = {"messages": [{"role": "user", "content": "Who are you? " * 40}], "tools": [WEATHER]}
    form, _ = BESIDE_TOOLS["json_schema"]
    plain = ask_trained(**fields, salt="one")["usage"]["prompt_tokens_details"]["cached_tokens"]
    held = ask_trained(**fields, **form, max_tokens=60, salt="another")["usage"]["prompt_tokens_details"]
    assert held["cached_tokens"] == plain == 0


def test_a_prompts_log_probabilities_are_shown_beside_a_form_and_tools(ask_trained):
    fields = {"messages": HELLO, "tools": [WEATHER], "prompt_logprobs": 1, "max_tokens": 60}
    held = ask_trained(**fields, **BESIDE_TOOLS["json_schema"][0])
    assert len(held["prompt_logprobs"]) == held["usage"]["prompt_tokens"]


WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}


def test_a_stream_waits_for_as_many_tokens_as_are_wanted(ask, greedy):
    chunks = ask(stream=True, stream_interval=5, return_token_ids=True)
    sizes = [len(chunk["choices"][0]["token_ids"]) for chunk in chunks if "token_ids" in chunk["choices"][0]]
    assert sizes[0] == 1
    assert sum(sizes) == len(greedy)
    assert max(sizes) == 5


def test_every_chunk_counts_the_tokens_so_far_where_that_is_wanted(ask, complete):
    options = {"include_usage": True, "continuous_usage_stats": True}
    for make in (ask, complete):
        *chunks, last = make(stream=True, stream_options=options, max_tokens=6)
        counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        assert counts == sorted(counts)
        assert set(counts) >= {1, 2, 3, 4, 5, 6}
        assert {chunk["usage"]["prompt_tokens"] for chunk in chunks} == {last["usage"]["prompt_tokens"]}
        assert last["usage"]["completion_tokens"] == 6
        assert all(chunk.get("usage") is None for chunk in make(stream=True, max_tokens=6))


def test_completions_take_the_same_options(complete):
    plain = complete(return_token_ids=True)["choices"][0]
    hot = complete(temperature=2.0, seed=3, top_k=1, return_token_ids=True)["choices"][0]
    assert hot["token_ids"] == plain["token_ids"]
    assert complete(ignore_eos=True, min_tokens=8)["usage"]["completion_tokens"] == 8
    shown = complete(prompt_logprobs=1)["choices"][0]["prompt_logprobs"]
    assert shown[0] is None
    assert all(entry for entry in shown[1:])
    chunks = complete(stream=True, return_token_ids=True)
    assert [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]] == plain["token_ids"]
    assert complete(truncate_prompt_tokens=1, return_token_ids=True)["usage"]["prompt_tokens"] == 1


def test_prompts_of_tokens_and_several_at_once_are_continued(complete):
    ids = complete(return_token_ids=True)["choices"][0]["prompt_token_ids"]
    alone = complete(prompt=ids)["choices"][0]["text"]
    assert alone == complete()["choices"][0]["text"]
    both = complete(prompt=[ids, ids[:1]])
    assert [choice["index"] for choice in both["choices"]] == [0, 1]
    assert both["choices"][0]["text"] == alone
    assert both["usage"]["prompt_tokens"] == len(ids) + 1


def test_a_request_of_later_priority_is_answered_the_same(complete):
    assert complete(priority=7)["choices"] == complete()["choices"]


def test_a_stream_behind_all_others_comes_token_by_token(ask, complete):
    for make in (ask, complete):
        own, behind = (
            make(stream=True, priority=priority, max_tokens=40, ignore_eos=True, return_token_ids=True)
            for priority in (0, 1)
        )
        assert len(behind) == len(own) > 20


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TAG = {
    "format": {
        "type": "tag",
        "begin": "<person>",
        "content": {"type": "json_schema", "json_schema": PERSON},
        "end": "</person>",
    }
}
NAMED = r'{\s?"name"\s?:\s?"[^"]{0,5}"\s?,\s?"age"\s?:\s?\d+\s?}'
FORMS = {
    "json": ({"json": PERSON}, NAMED),
    "json as text": ({"json": json.dumps(PERSON)}, NAMED),
    "json object": ({"json_object": True}, r"\{[^\0]*"),
    "regex": ({"regex": "[ab]{3}-[0-9]{2}"}, "[ab]{3}-[0-9]{2}"),
    "choice": ({"choice": ['say "yes"', "no\\"]}, r'say "yes"|no\\'),
    "grammar": ({"grammar": 'root ::= "one " rest\nrest ::= "two" | "three"'}, "one (two|three)"),
    "grammar of Lark": (
        {"grammar": lark_to_ebnf('start: "one " rest NUMBER\nrest: "two" | "three"\nNUMBER: /[0-9]{2}/')},
        "one (two|three)[0-9]{2}",
    ),
    "choice of several lines": ({"choice": ["one\ntwo", "\ttab"]}, "one\ntwo|\ttab"),
    "structural tag": ({"structural_tag": json.dumps(TAG)}, f"<person>{NAMED}</person>"),
}


@pytest.mark.parametrize("name", FORMS)
def test_an_answer_is_held_to_its_form(ask, complete, name):
    form, pattern = FORMS[name]
    assert re.fullmatch(pattern, text(ask(structured_outputs=form, max_tokens=60)))
    assert re.fullmatch(pattern, complete(structured_outputs=form, max_tokens=60)["choices"][0]["text"])


def test_completions_have_a_response_format(complete):
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    assert set(json.loads(complete(response_format=wanted, max_tokens=60)["choices"][0]["text"])) == {"name", "age"}


TAGGED = f"<person>{NAMED}</person>"


def test_a_structural_tag_may_be_the_response_format(ask, complete):
    fields = {"response_format": {"type": "structural_tag", **TAG}, "max_tokens": 80}
    assert re.fullmatch(TAGGED, text(ask(**fields)))
    assert re.fullmatch(TAGGED, complete(**fields)["choices"][0]["text"])


def test_a_structural_tag_of_parts_holds_what_comes_after_a_trigger(real_engine, ask, complete):
    (letter,) = real_engine.serving.renderer.tokenizer.encode("a", add_special_tokens=False)
    parts = [{"begin": "a", "schema": PERSON, "end": "!"}]
    wanted = {"type": "structural_tag", "structures": parts, "triggers": ["a"]}
    fields = {"response_format": wanted, "logit_bias": {str(letter): 100}, "max_tokens": 60}
    pattern = r'a{\s?"name"\s?:\s?"[^"]{0,5}"\s?,\s?"age"\s?:\s?\d+\s?}!'
    assert re.match(pattern, text(ask(**fields)))
    assert re.match(pattern, complete(**fields)["choices"][0]["text"])


def test_a_response_format_that_is_no_tag_is_refused_by_name(ask, complete):
    for make in (ask, complete):
        with pytest.raises(RequestRejected) as caught:
            make(response_format={"type": "structural_tag", "format": {"type": "nothing"}})
        assert caught.value.param == "response_format"


HOSTILE = {
    "a repetition of a repetition": {"regex": "(a*b*)*c"},
    "the same in a group": {"regex": "x((ab?)+(a?b)*)+y"},
    "a rule that is itself twice": {"grammar": 'root ::= root root | "a"'},
    "the same in a tag": {
        "structural_tag": json.dumps({"format": {"type": "regex", "pattern": "(a*b*)*c"}}),
    },
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_form_that_explodes_is_refused_before_the_engine_gets_it(ask, complete, name):
    for make in (ask, complete):
        with pytest.raises(RequestRejected) as caught:
            make(structured_outputs=HOSTILE[name])
        assert "too much time" in caught.value.message
        assert caught.value.param.startswith("structured_outputs.")


INVALID = {
    "regex": {"regex": "(a"},
    "grammar": {"grammar": "root ::= nowhere"},
    "structural_tag": {"structural_tag": '{"format": {"type": "nothing"}}'},
}


@pytest.mark.parametrize("name", INVALID)
def test_a_form_that_is_none_is_refused_by_name(ask, name):
    with pytest.raises(RequestRejected) as caught:
        ask(structured_outputs=INVALID[name])
    assert caught.value.param == f"structured_outputs.{name}"


class Lenient(SchemaCompiler):
    """A compiler whose trials find every form quick to follow."""

    async def _try(self, digest, asked):
        verdict = Verdict(OK, asked.decode().partition("\n")[2])
        self._remember(digest, verdict)
        return verdict


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("route", [asker, completer], ids=["chat", "completions"])
def test_a_grammar_that_explodes_where_nobody_looked_ends_its_request_and_is_then_refused_to_that_account(
    real_engine, ask, route, stream
):
    """The same as if the trial had not found the way on which a grammar is slow."""
    lenient = route(real_engine, Lenient())
    (letter,) = real_engine.serving.renderer.tokenizer.encode("a", add_special_tokens=False)
    exploding = {"structured_outputs": {"regex": "(a*)*b"}, "logit_bias": {str(letter): 100}, "max_tokens": 900}
    started = time.monotonic()
    with pytest.raises(RequestRejected) as caught:
        lenient(**exploding, stream=stream)
    assert "to follow it takes too long" in caught.value.message
    assert time.monotonic() - started < 20
    assert text(ask())
    with pytest.raises(RequestRejected) as caught:
        lenient(**exploding, stream=stream)
    assert "took too much time to keep to it" in caught.value.message
    assert caught.value.param == "structured_outputs.regex"
    assert lenient(structured_outputs=exploding["structured_outputs"], salt="another account's")


def test_a_form_is_not_remembered_as_slow_because_other_options_forbid_its_tokens(real_engine):
    lenient = asker(real_engine, Lenient())
    (letter,) = real_engine.serving.renderer.tokenizer.encode("q", add_special_tokens=False)
    with pytest.raises(RequestRejected, match="other parameters forbid"):
        lenient(structured_outputs={"choice": ["yes"]}, allowed_token_ids=[letter])
    assert text(lenient(structured_outputs={"choice": ["yes"]})) == "yes"


def test_the_log_does_not_say_which_tokens_a_grammar_refused(real_engine):
    from vllm.v1.core.sched import scheduler
    from vllm.v1.structured_output import backend_xgrammar

    from deployments.replica.scheduling.grammar_time import use_timed_grammars

    use_timed_grammars()  # As in the process of the engine.
    for module, said in (
        (scheduler, "Unexpected: grammar rejected tokens %s for request %s. Terminating request."),
        (backend_xgrammar, "Failed to advance FSM for request %s for tokens %s. Please file an issue."),
    ):
        assert said in re.sub(r'"\s+"', "", inspect.getsource(module))
        record = logging.LogRecord(module.__name__, logging.ERROR, "", 0, said, (1, 2), None)
        assert not module.logger.filter(record)


def test_an_answer_goes_on_past_its_form_only_where_the_end_is_ignored(ask):
    form = {"choice": ["yes"]}
    assert text(ask(structured_outputs=form, min_tokens=10)) == "yes"
    longer = ask(structured_outputs=form, ignore_eos=True)
    assert text(longer).startswith("yes")
    assert longer["usage"]["completion_tokens"] == 12


def test_options_that_forbid_every_token_of_a_form_end_the_request_alone(real_engine, ask, complete):
    (letter,) = real_engine.serving.renderer.tokenizer.encode("q", add_special_tokens=False)
    for make in (ask, complete):
        for stream in (False, True):
            with pytest.raises(RequestRejected, match="could not be kept"):
                make(structured_outputs={"choice": ["yes"]}, allowed_token_ids=[letter], stream=stream)
    assert text(ask())


UNIT = {
    "type": "function",
    "function": {
        "name": "set_unit",
        "description": "Set the unit of temperatures.",
        "parameters": {
            "type": "object",
            "properties": {"unit": {"type": "string", "enum": ["celsius", "fahrenheit", "kelvin"]}},
            "required": ["unit"],
            "additionalProperties": False,
        },
    },
}
FORCED = {
    "messages": [{"role": "user", "content": "Use kelvin."}],
    "tools": [UNIT],
    "tool_choice": {"type": "function", "function": {"name": "set_unit"}},
}


@pytest.mark.parametrize("choice", [FORCED["tool_choice"], "required"], ids=["named", "required"])
def test_a_forced_call_wastes_no_tokens_on_white_space(ask_trained, choice):
    answer = ask_trained(**{**FORCED, "tool_choice": choice}, max_tokens=200)
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"unit": "kelvin"}
    assert answer["usage"]["completion_tokens"] < 60


def function_of(parameters, **fields):
    function = {"name": "set_unit", **({} if parameters is None else {"parameters": parameters}), **fields}
    return {"type": "function", "function": function}


NAMED = {"type": "function", "function": {"name": "set_unit"}}
NOT_KEPT = {"not": {"pattern": "a"}}
ROWS = {"allOf": [{"properties": {"rows": {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True}}}]}


@pytest.mark.parametrize("choice", [NAMED, "required"], ids=["named", "required"])
@pytest.mark.parametrize(
    "parameters", [None, {}, {"type": "object"}, {"type": "object", "properties": {}}], ids=range(4)
)
@pytest.mark.parametrize("strict", [{}, {"strict": True}, {"strict": False}], ids=["", "strict", "not strict"])
def test_a_function_without_parameters_is_called_without_arguments(ask, parameters, choice, strict):
    answer = ask(messages=HELLO, tools=[function_of(parameters, **strict)], tool_choice=choice, max_tokens=60)
    for call in answer["choices"][0]["message"]["tool_calls"][:-1] or answer["choices"][0]["message"]["tool_calls"]:
        assert json.loads(call["function"]["arguments"]) == {}


@pytest.mark.parametrize("choice", [NAMED, "required"], ids=["named", "required"])
def test_arguments_fit_words_that_a_grammar_alone_would_drop(ask, choice):
    parameters = {"type": "object", "required": ["rows"], "additionalProperties": False, **ROWS}
    parameters["properties"] = {"rows": {"minItems": 1}}
    call = ask(tools=[function_of(parameters)], tool_choice=choice, max_tokens=90)["choices"][0]["message"][
        "tool_calls"
    ][0]
    rows = json.loads(call["function"]["arguments"])["rows"]
    assert rows in ([1], [2], [1, 2])


def test_the_prompt_shows_tools_as_they_were_sent(ask, real_engine):
    prompts = [
        ask(tools=[function_of(parameters)], tool_choice="required", return_prompt_text=True)["prompt_text"]
        for parameters in (None, {"type": "object", "properties": {"a": {"pattern": "^a", "type": "string"}}})
    ]
    assert "x-number" not in "".join(prompts)
    assert "additionalProperties" not in prompts[0]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [UNIT, function_of(NOT_KEPT)], "tool_choice": "required"}, "tools[1].function.parameters"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": NOT_KEPT}}},
            "response_format.json_schema.schema",
        ),
        ({"structured_outputs": {"json": NOT_KEPT}}, "structured_outputs.json"),
    ],
    ids=["tools", "response_format", "structured_outputs"],
)
def test_a_word_that_cannot_be_kept_is_refused_by_name_and_field(ask, fields, param):
    with pytest.raises(RequestRejected) as refused:
        ask(**fields)
    assert (refused.value.param, refused.value.code) == (param, "invalid_value")
    assert refused.value.message.startswith(
        f"Invalid schema for '{param}': 'pattern' at 'not.pattern' is not supported"
    )


def test_schemas_within_a_tag_are_kept_or_refused_by_their_place(ask):
    def tag(schema):
        part = {"type": "json_schema", "json_schema": schema}
        return {"response_format": {"type": "structural_tag", "format": part}, "max_tokens": 60}

    assert json.loads(text(ask(**tag({"allOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]})))) == "b"
    with pytest.raises(RequestRejected) as refused:
        ask(**tag({"not": {"pattern": "a"}}))
    assert "'pattern' at 'format.json_schema.not.pattern' is not supported" in refused.value.message


def test_a_model_that_is_unsure_wastes_no_tokens_on_white_space_either(ask):
    answer = ask(**FORCED, max_tokens=200)
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["unit"] in ("celsius", "fahrenheit", "kelvin")
    assert answer["usage"]["completion_tokens"] < 60


def test_json_wastes_no_tokens_on_white_space(ask):
    wanted = {"type": "json_schema", "json_schema": {"name": "unit", "schema": UNIT["function"]["parameters"]}}
    answer = ask(response_format=wanted, max_tokens=100)
    assert re.fullmatch(r'{\s?"unit"\s?:\s?"[a-z]+"\s?}', text(answer))
    assert not re.search(r"\s\s", text(ask(response_format={"type": "json_object"}, max_tokens=60)))


def test_a_forced_call_says_the_same_whole_and_streamed_wherever_it_is_cut(ask_trained):
    length = ask_trained(**FORCED, max_tokens=100)["usage"]["completion_tokens"]
    for max_tokens in range(1, length + 1):
        whole = ask_trained(**FORCED, max_tokens=max_tokens)["choices"][0]
        message, reason = whole["message"], whole["finish_reason"]
        told = [call["function"] for call in message.get("tool_calls", [])]
        said, content = {"name": "", "arguments": ""}, ""
        for chunk in ask_trained(**FORCED, max_tokens=max_tokens, stream=True):
            delta = chunk["choices"][0]["delta"]
            content += delta.get("content") or ""
            for call in delta.get("tool_calls", ()):
                for field, more in call["function"].items():
                    said[field] += more
        assert content == (message["content"] or "") == ""
        assert told == ([said] if said["name"] else [])
        assert reason == ("stop" if max_tokens == length else "length")
    assert json.loads(said["arguments"]) == {"unit": "kelvin"}
