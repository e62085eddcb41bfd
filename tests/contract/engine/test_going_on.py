"""Answers that go on where another engine stopped: wherever the cut is, the two parts are the whole."""

import asyncio
import json
import re

import orjson
import pytest

from deployments.models.contract.errors import EngineDied
from deployments.models.contract.steps import Written
from tests.contract.engine.conftest import BLOCK
from tests.contract.engine.cuts import wherever_it_is_cut
from tests.contract.engine.replies import Collected, assert_goes_on

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Get the weather in a city.", "parameters": CITY},
}
STRICT = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
IN_JSON = {
    "question": f"Esther is 34 years old. Answer in JSON with the schema {json.dumps(PERSON)}",
    "response_format": {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}},
}
TWO_CITIES = "What is the weather in Tallinn and Kyoto?"
LOUD = "It is 20 degrees, 漢字 and 🦀🦀, Enchanté!"
LETTERS = {"structured_outputs": {"regex": "[a-f]{40}"}}  # Over which the model repeats itself, unless it is penalized.
CALL = ["tool_call", "tool_arguments"]
# What is asked, and the kinds of events of the whole answer, in order of their first.
CASES = {
    "text": ({"question": "Who are you?"}, ["text"]),
    "letters under a frequency penalty": ({**LETTERS, "frequency_penalty": 2.0}, ["text"]),
    "text up to a stop string": ({"question": "Who are you?", "stop": ["demo model", "never"]}, ["text"]),
    "text of its greatest length": ({"question": "Who are you?", "max_tokens": 7}, ["text"]),
    "characters of many tokens": ({"structured_outputs": {"choice": [LOUD]}}, ["text"]),
    "a thought": ({"question": "What is 7 + 8?", "reasoning_effort": "low"}, ["reasoning", "text"]),
    "a call": ({"tools": [WEATHER]}, CALL),
    "two calls": ({"question": TWO_CITIES, "tools": [WEATHER]}, CALL),
    "two calls after a thought": (
        {"question": TWO_CITIES, "tools": [WEATHER], "reasoning_effort": "low"},
        ["reasoning", *CALL],
    ),
    "strict calls": ({"question": TWO_CITIES, "tools": [STRICT]}, CALL),
    "a required call": ({"tools": [WEATHER], "tool_choice": "required"}, CALL),
    "a named call": ({"tools": [WEATHER], "tool_choice": NAMED}, CALL),
    "guided text": (IN_JSON, ["text"]),
    "guided text after a thought": ({**IN_JSON, "reasoning_effort": "low"}, ["reasoning", "text"]),
}


@pytest.fixture(scope="module")
def ask(trained_engine):
    from deployments.replica.chat import ChatRunner
    from deployments.replica.scheduling.preparing import Preparing
    from deployments.replica.schemas.budget import SchemaCompiler

    compiler = SchemaCompiler(any_whitespace=False, cpu_s=10, wall_s=120)
    runner = ChatRunner(trained_engine.client, trained_engine.serving, compiler, Preparing(), trained_engine.model)

    async def ask(asked, number=0, **header):
        fields = {"question": "What is the weather in Tallinn?", "temperature": 0, "max_tokens": 200, **asked}
        body = {"messages": [{"role": "user", "content": fields.pop("question")}], **fields}
        full = {"request_id": "req_1", "stream": True, "render": "events", "cache_salt": str(number), "priority": 0}
        reply = Collected()
        await runner.run({**full, "created": 7, "takes_notes": True, **header}, json.dumps(body).encode(), reply)
        return reply

    yield ask
    trained_engine.run(compiler.aclose())


def told_by(reply) -> list[list]:
    """Return the events of each write; the ids of calls, which are drawn, are left out."""
    told = [orjson.loads(piece or b"[]") for piece in reply.writes]
    return [[event[:3] + event[4:] if event[0] == "tool_call" else event for event in events] for events in told]


def kinds_of(told) -> list[str]:
    return list(dict.fromkeys(event[0] for events in told for event in events))


async def whole_and_rests(ask, asked, cuts_of, **header):
    """Return an answer, and by the number of writes that came before what it is from there on."""
    whole = await ask(asked, **header)
    cuts = cuts_of(len(whole.writes))
    rests = await asyncio.gather(*(ask(asked, cut, written=whole.numbers(cut), **header) for cut in cuts))
    return whole, dict(zip(cuts, rests, strict=True))


@wherever_it_is_cut
@pytest.mark.parametrize("name", CASES)
def test_the_parts_of_an_answer_are_the_whole_wherever_it_is_cut(trained_engine, ask, name, cuts_of):
    asked, kinds = CASES[name]
    whole, rests = trained_engine.run(whole_and_rests(ask, asked, cuts_of))
    assert kinds_of(told_by(whole)) == [*kinds, "finished"]
    assert len(whole.writes) >= 5
    assert (whole.summary["usage"][3] > 0) is ("reasoning" in kinds)
    for cut, rest in rests.items():
        assert told_by(rest) == told_by(whole)[cut:]
        assert_goes_on(whole, rest, cut)


def text_of(reply) -> str:
    return "".join(event[2] for events in told_by(reply) for event in events if event[0] == "text")


# The model is sure of what it says, but not of letters without sense.
SAMPLED = {"structured_outputs": {"regex": "[a-z ]{60}"}, "temperature": 2.0, "seed": 7, "max_tokens": 60}
SEEDED_LETTERS = {**LETTERS, "temperature": 2.0, "seed": 7}
PENALIZED = {"presence_penalty": 2.0, "frequency_penalty": 2.0}
# Streams for the wire, and how many choices they have.
STREAMS = {
    "text": ({"question": "Who are you?"}, 1),
    "a sampled answer with a seed": (SAMPLED, 1),
    "a seed and penalties": ({**SEEDED_LETTERS, **PENALIZED}, 1),
    "letters under both penalties": ({**LETTERS, **PENALIZED}, 1),
    "three sampled answers": ({**SAMPLED, "n": 3, "stream_options": {"include_usage": True}}, 3),
    "three guided answers": ({**IN_JSON, "temperature": 1.0, "seed": 3, "n": 3}, 3),
    "three answers of several lengths": ({**SAMPLED, "n": 3, "stop": ["a"]}, 3),
    "answers in a form beside a tool": (
        {
            "question": "Who are you?",
            "tools": [WEATHER],
            "structured_outputs": {"choice": ["yes, of course", "no, not at all"]},
            "n": 3,
            "temperature": 1.2,
            "seed": 3,
        },
        3,
    ),
    "a thought": ({"question": "What is 7 + 8?", "reasoning_effort": "low"}, 1),
    "two calls": ({"question": TWO_CITIES, "tools": [WEATHER]}, 1),
    "the likeliest with a seed": (
        {**SEEDED_LETTERS, "top_k": 1, "min_p": 0.1, "repetition_penalty": 1.5, "structured_outputs": None},
        1,
    ),
    "sampling among some with a seed": ({**SAMPLED, "top_k": 5, "min_p": 0.05, "repetition_penalty": 1.3}, 1),
    "no bad words and a least length": (
        {
            "question": "Who are you?",
            "bad_words": ["demo", "model"],
            "min_tokens": 20,
            "ignore_eos": True,
            "max_tokens": 30,
        },
        1,
    ),
    "a thought with a budget": (
        {"question": "What is 7 + 8?", "reasoning_effort": "low", "thinking_token_budget": 3},
        1,
    ),
    "repetitions that end one of two answers": (
        {
            "n": 2,
            "temperature": 2.0,
            "seed": 1,
            "allowed_token_ids": [40, 41, 42],
            "repetition_detection": {"max_pattern_size": 1, "min_count": 3},
        },
        2,
    ),
    "special tokens that are shown": (
        {"question": "Who are you?", "ignore_eos": True, "skip_special_tokens": False, "max_tokens": 40},
        1,
    ),
    "tokens and counts in every chunk": (
        {
            "question": "Who are you?",
            "return_token_ids": True,
            "return_prompt_text": True,
            "echo": True,
            "add_generation_prompt": False,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        },
        1,
    ),
    "several tokens a chunk": ({"question": "Who are you?", "stream_interval": 3}, 1),
    "a stop string that is shown": ({"question": "Who are you?", "stop": ["model"], "min_tokens": 3}, 1),
}


def without_ids(piece: bytes) -> bytes:
    return re.sub(rb'"id":"call_[^"]*"', b"", piece)


@wherever_it_is_cut
@pytest.mark.parametrize("name", STREAMS)
def test_the_bytes_of_a_stream_are_the_same_wherever_it_is_cut(trained_engine, ask, name, cuts_of):
    asked, num_choices = STREAMS[name]
    whole, rests = trained_engine.run(whole_and_rests(ask, asked, cuts_of, render="wire"))
    assert whole.last.endswith(b"data: [DONE]\n\n")
    assert {step.choice for step in Written(whole.numbers()).steps} == set(range(num_choices))
    for cut, rest in rests.items():
        parts: list[list[bytes]] = [[], []]
        for number, pieces in enumerate((whole.writes[cut:], rest.writes)):
            for choice in range(num_choices):  # The order in which choices take turns is the engine's.
                parts[number] += [without_ids(piece) for piece in pieces if b'"index":%d' % choice in piece]
        assert parts[1] == parts[0]
        assert (rest.last, rest.summary) == (whole.last, whole.summary)


def test_answers_that_repeat_themselves_end_at_different_times(trained_engine, ask):
    asked, _ = STREAMS["repetitions that end one of two answers"]
    written = Written(trained_engine.run(ask(asked)).numbers())
    lengths = [sum(map(len, written.groups_of(choice))) for choice in range(2)]
    assert lengths[0] != lengths[1]
    assert max(lengths) < 200


def test_seeds_and_penalties_change_what_is_said(trained_engine, ask):
    for asked, changes in ((SAMPLED, {"seed": 8}), (SEEDED_LETTERS, PENALIZED)):
        assert text_of(trained_engine.run(ask(asked))) != text_of(trained_engine.run(ask({**asked, **changes})))


def test_pieces_that_end_amid_a_character_have_their_tokens(trained_engine, ask):
    whole = trained_engine.run(ask(CASES["characters of many tokens"][0]))
    assert sum(not events for events in told_by(whole)) >= 5
    assert text_of(whole) == LOUD


def test_a_stop_string_is_found_across_the_cut(trained_engine, ask):
    asked = CASES["text up to a stop string"][0]
    text, uncut = (text_of(trained_engine.run(ask(one))) for one in (asked, {"question": asked["question"]}))
    assert uncut.startswith(text + "demo model")


def test_a_frequency_penalty_changes_what_is_said(trained_engine, ask):
    whole = trained_engine.run(ask(CASES["letters under a frequency penalty"][0]))
    assert text_of(whole) != text_of(trained_engine.run(ask(LETTERS)))


@pytest.mark.parametrize("name", ["text", "text up to a stop string", "text of its greatest length", "a call"])
def test_the_engine_is_not_asked_for_an_answer_that_was_written_to_its_end(trained_engine, ask, name, monkeypatch):
    asked, _ = CASES[name]
    whole = trained_engine.run(ask(asked))
    monkeypatch.setattr(trained_engine.client.engine_core, "add_request_async", None)
    rest = trained_engine.run(ask(asked, written=whole.numbers()))
    assert (rest.writes, rest.summary) == ([], whole.summary)


def test_an_answer_ends_where_its_length_does_whoever_wrote_it(trained_engine, ask):
    whole = trained_engine.run(ask({"question": "Who are you?"}))
    rest = trained_engine.run(ask({"question": "Who are you?", "max_tokens": 5}, written=whole.numbers(6)))
    assert (rest.writes, rest.summary["finish_reasons"], rest.summary["usage"][1]) == ([], ["length"], 5)


@pytest.mark.parametrize("render", ["wire", "events"])
def test_pieces_are_the_same_for_a_reader_that_takes_no_notes(trained_engine, ask, render):
    asked = {"question": "Who are you?"}
    noted = trained_engine.run(ask(asked, render=render))
    plain = trained_engine.run(ask(asked, render=render, takes_notes=False))
    assert plain.writes == noted.pieces
    assert not any(plain.notes)


def test_log_probabilities_are_those_of_the_tokens_that_are_new(trained_engine, ask):
    asked = {"question": "Who are you?", "logprobs": True, "top_logprobs": 2, "temperature": 1.0, "seed": 1}
    whole = trained_engine.run(ask(asked))
    rest = trained_engine.run(ask(asked, written=whole.numbers(5)))
    assert rest.notes == whole.notes[5:]
    shown, shown_before = (
        [token for events in told for event in events if event[0] == "logprobs" for token in event[2]]
        for told in (told_by(rest), told_by(whole)[5:])
    )
    assert len(shown) > 5
    assert [token["token"] for token in shown] == [token["token"] for token in shown_before]
    assert [token["logprob"] for token in shown] == pytest.approx(
        [token["logprob"] for token in shown_before], abs=1e-4
    )


@pytest.mark.parametrize("knows_prompt", [True, False])
def test_a_prefix_that_is_cached_counts_as_far_as_the_prompt_goes(trained_engine, ask, knows_prompt):
    asked = {"question": TWO_CITIES, "tools": [WEATHER]}
    whole = trained_engine.run(ask(asked, cache_salt="one"))
    written = whole.numbers(len(whole.writes) - 1)
    if not knows_prompt:  # So it is for a background response that another process takes over.
        written = written[5:]
    rest = trained_engine.run(ask(asked, cache_salt="one", written=written))
    num_prompt, num_completion, num_cached, _ = rest.summary["usage"]
    num_read = num_prompt + num_completion - 1
    assert num_prompt < (num_read - 1) // BLOCK * BLOCK  # The cache holds whole blocks, and one token is always read.
    assert num_cached == (0 if knows_prompt else num_prompt)


def test_tokens_that_the_grammar_refuses_fail_the_request_alone(trained_engine, ask):
    async def scenario():
        text = await ask(CASES["text"][0])
        refused, served = await asyncio.gather(
            ask(IN_JSON, 1, written=text.numbers(4)), ask(IN_JSON, 2), return_exceptions=True
        )
        return refused, served

    refused, served = trained_engine.run(scenario())
    assert isinstance(refused, EngineDied)
    assert served.summary["finish_reasons"] == ["stop"]


def test_an_answer_does_not_go_on_with_a_scheduler_that_cannot_continue_it(trained_engine, ask, monkeypatch):
    whole = trained_engine.run(ask(IN_JSON))
    monkeypatch.setattr(trained_engine.client.vllm_config.scheduler_config, "scheduler_cls", None)
    with pytest.raises(EngineDied):
        trained_engine.run(ask(IN_JSON, written=whole.numbers(4)))


def test_both_schedulers_go_on():
    from deployments.replica.resume.grammar import ResumingScheduler
    from deployments.replica.scheduling.scheduler import AsyncInteractiveFirst, InteractiveFirst

    for scheduler in (InteractiveFirst, AsyncInteractiveFirst):
        assert issubclass(scheduler, ResumingScheduler)
