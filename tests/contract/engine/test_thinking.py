"""Reasoning through the real engine: efforts bound it, and forms of the answer stay out of it."""

import json
import re

import pytest

from deployments.models.contract.errors import RequestRejected
from deployments.models.reasoning import reasoning_budgets
from deployments.replica.schemas.budget import SchemaCompiler
from tests.contract.engine.test_options import SAID, asker

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

BUDGETS = {**reasoning_budgets(1024, {}), "minimal": 2, "low": 4}
"""The demo model reasons briefly, so its budgets are small here."""
QUESTION = {"messages": [{"role": "user", "content": "What is 7 + 8?"}], "max_tokens": 100}
THINK = {"chat_template_kwargs": {"enable_thinking": True}}


@pytest.fixture(scope="module")
def compiler_here(trained_engine):
    compiler = SchemaCompiler(any_whitespace=False)  # In the loop of its engine.
    yield compiler
    trained_engine.run(compiler.aclose())


@pytest.fixture(scope="module")
def ask(trained_engine, compiler_here):
    return asker(trained_engine, compiler_here, budgets=BUDGETS)


def reasoning_tokens(answer) -> int:
    usage = (answer[-1] if isinstance(answer, list) else answer)["usage"]
    return usage["completion_tokens_details"]["reasoning_tokens"]


def text(answer) -> str:
    return answer["choices"][0]["message"]["content"] or ""


@pytest.fixture(scope="module")
def free(ask) -> int:
    """How many tokens the model reasons if nothing bounds it."""
    num_tokens = reasoning_tokens(ask(**QUESTION, **THINK))
    assert num_tokens > 6
    return num_tokens


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("effort", ["minimal", "low"])
def test_an_effort_bounds_the_tokens_of_reasoning(ask, free, effort, stream):
    options = {"stream_options": {"include_usage": True}} if stream else {}
    answer = ask(**QUESTION, reasoning_effort=effort, stream=stream, **options)
    assert 0 < reasoning_tokens(answer) <= BUDGETS[effort] < free


@pytest.mark.parametrize("effort", ["medium", "high", "xhigh", "max"])
def test_reasoning_that_ends_by_itself_is_not_changed_by_its_bound(ask, free, effort):
    bounded, unbounded = ask(**QUESTION, reasoning_effort=effort), ask(**QUESTION, **THINK)
    assert bounded["choices"] == unbounded["choices"]


def test_the_budget_of_a_request_comes_before_that_of_its_effort(ask, free):
    asked = {**QUESTION, "reasoning_effort": "minimal"}
    assert reasoning_tokens(ask(**asked, thinking_token_budget=-1)) == free
    assert BUDGETS["minimal"] < reasoning_tokens(ask(**asked, thinking_token_budget=5)) <= 5
    assert 0 < reasoning_tokens(ask(**QUESTION, **THINK, thinking_token_budget=4)) <= 4


def test_every_choice_keeps_its_bound(ask):
    answer = ask(**QUESTION, reasoning_effort="low", n=8, temperature=1.5, seed=3)
    assert 0 < reasoning_tokens(answer) <= 8 * BUDGETS["low"]
    assert all(choice["message"]["content"] for choice in answer["choices"])


@pytest.mark.parametrize("template", [{}, THINK], ids=["turned off", "always on"])
def test_without_effort_there_is_no_reasoning_whatever_the_template_does(ask, template):
    answer = ask(**QUESTION, reasoning_effort="none", **template)
    assert reasoning_tokens(answer) == 0
    assert not answer["choices"][0]["message"].get("reasoning")
    assert "15" in text(answer)


def test_vllm_has_the_efforts_of_gpt_oss_that_others_are_named_by():
    from vllm.entrypoints.openai.parser.harmony_utils import REASONING_EFFORT

    assert set(REASONING_EFFORT) == {"low", "medium", "high"}


CITY = {  # Within bounds: a model that is drawn at random may write a string without an end.
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}
FORMS = {
    "schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SAID}}},
    "tool": {"tools": [WEATHER], "tool_choice": "required"},
    "regex": {"structured_outputs": {"regex": "[a-z]{2}-[0-9]{3}"}},
}
THINKING = {
    "on": THINK,
    "off": {},
    "none": {"reasoning_effort": "none", **THINK},
    "effort": {"reasoning_effort": "low"},
    "budgeted": {**THINK, "thinking_token_budget": 4},
}
QUESTIONS = ("What is 7 + 8?", "What is the weather in Tallinn?", "Who are you?")


def said_in_form(form, message) -> bool:
    if form == "tool":
        return all(set(json.loads(call["function"]["arguments"])) >= {"city"} for call in message["tool_calls"])
    if form == "regex":
        return re.fullmatch("[a-z]{2}-[0-9]{3}", message["content"]) is not None
    return set(json.loads(message["content"])) == {"sure", "kind"}


@pytest.mark.parametrize("thinking", THINKING)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tries", [1, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_a_form_and_reasoning_keep_apart(ask, form, thinking, tries):
    for seed in range(tries):
        messages = [{"role": "user", "content": QUESTIONS[seed % 3]}]
        options = {**FORMS[form], **THINKING[thinking], "n": 10, "temperature": 1.0, "seed": seed}
        answer = ask(messages=messages, max_tokens=300, **options)
        for choice in answer["choices"]:
            thought = choice["message"].get("reasoning") or ""
            assert "{" not in thought
            assert bool(thought) == (thinking not in ("off", "none"))
            assert choice["finish_reason"] in ("stop", "tool_calls")
            assert said_in_form(form, choice["message"]), choice
        most = {"effort": BUDGETS["low"], "budgeted": 4, "off": 0, "none": 0}.get(thinking, 300)
        assert reasoning_tokens(answer) <= 10 * most


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_in_a_form_does_not_end_while_the_model_reasons(ask, trained_engine, form):
    end = trained_engine.client.get_tokenizer().convert_tokens_to_ids("<|im_end|>")
    asked = {**QUESTION, **THINK, "logit_bias": {end: 100}}
    assert ask(**asked)["usage"]["completion_tokens"] == 1
    choice = ask(**{**asked, "max_tokens": 300}, **FORMS[form])["choices"][0]
    assert choice["finish_reason"] in ("stop", "tool_calls")
    assert said_in_form(form, choice["message"])
    cut = ask(**{**asked, "max_tokens": 3}, **FORMS[form])["choices"][0]
    assert cut["finish_reason"] == "length"


def test_a_stop_token_does_not_take_the_form_from_an_answer(ask, trained_engine):
    tokenizer = trained_engine.client.get_tokenizer()
    asked = {**QUESTION, **THINK, **FORMS["regex"]}
    thought = ask(**asked)["choices"][0]["message"]["reasoning"]
    within = ask(**asked, stop_token_ids=tokenizer.encode(thought, add_special_tokens=False)[:1])["choices"][0]
    assert said_in_form("regex", within["message"])
    with pytest.raises(RequestRejected) as caught:
        ask(**asked, stop_token_ids=tokenizer.encode("</think>", add_special_tokens=False))
    assert caught.value.param == "stop_token_ids"
    stops = {"stop_token_ids": tokenizer.encode("-", add_special_tokens=False)}
    with pytest.raises(RequestRejected, match="could not be kept to the form"):
        ask(**QUESTION, **FORMS["regex"], **stops)
    optional = ask(**QUESTION, structured_outputs={"regex": "[a-z]{2}(-[0-9]{3})?"}, **stops)["choices"][0]
    assert re.fullmatch("[a-z]{2}", optional["message"]["content"])


@pytest.mark.parametrize("thinking", THINKING)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tries", [1, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_a_stream_keeps_them_apart_too(ask, form, thinking, tries):
    for seed in range(tries):
        messages = [{"role": "user", "content": QUESTIONS[seed % 3]}]
        options = {**FORMS[form], **THINKING[thinking], "temperature": 1.0, "seed": seed}
        order, said, arguments = [], "", ""
        for chunk in ask(messages=messages, max_tokens=300, stream=True, **options):
            delta = chunk["choices"][0]["delta"]
            order += [name for name in ("reasoning", "content", "tool_calls") if delta.get(name)]
            assert "{" not in (delta.get("reasoning") or "")
            said += delta.get("content") or ""
            for call in delta.get("tool_calls", ()):
                arguments += call["function"].get("arguments", "")
        thought = [] if thinking in ("off", "none") else ["reasoning"]
        assert list(dict.fromkeys(order)) == [*thought, "tool_calls" if form == "tool" else "content"]
        assert order == sorted(order, key=list(dict.fromkeys(order)).index)  # Nothing comes twice.
        if form == "tool":
            assert '"city"' in arguments
        else:
            assert said_in_form(form, {"content": said})
