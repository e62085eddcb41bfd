"""Answers that go on where another engine stopped: wherever the cut is, the two parts are the whole."""

import asyncio
import json

import orjson
import pytest

from deployments.models.contract.errors import EngineDied, EngineError
from tests.contract.engine.conftest import BLOCK

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
LETTERS = {"structured_outputs": {"regex": "[ab]{40}"}}  # The model always writes the same one unless it is penalized.
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


class Collected:
    """A reply that keeps what it is given."""

    def __init__(self):
        self.pieces: list[bytes] = []
        self.summary: dict = {}

    @property
    def told(self) -> list[tuple[list[int], list]]:
        """The tokens and the events of each piece; the ids of calls, which are drawn, are left out."""
        told = []
        for piece in self.pieces:
            (kind, choice, token_ids), *events = orjson.loads(piece)
            assert (kind, choice) == ("token_ids", 0)
            told.append((token_ids, [event[:3] + event[4:] if event[0] == "tool_call" else event for event in events]))
        return told

    @property
    def groups(self) -> list[list[int]]:
        return [token_ids for token_ids, _ in self.told]

    def write(self, piece):
        self.pieces.append(piece)

    def end(self, summary):
        self.summary = summary

    def fail(self, error: EngineError):
        raise AssertionError(error)


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
        full = {"request_id": f"req_{number}", "stream": True, "render": "events", "cache_salt": "", "priority": 0}
        reply = Collected()
        await runner.run({**full, "tells_tokens": True, **header}, json.dumps(body).encode(), reply)
        return reply

    yield ask
    trained_engine.run(compiler.aclose())


def kinds_of(told) -> list[str]:
    return list(dict.fromkeys(event[0] for _, events in told for event in events))


@pytest.mark.parametrize("name", CASES)
def test_the_parts_of_an_answer_are_the_whole_wherever_it_is_cut(trained_engine, ask, name):
    asked, kinds = CASES[name]

    async def whole_and_rests():
        whole = await ask(asked)
        cuts = range(1, len(whole.pieces))
        return whole, await asyncio.gather(*(ask(asked, cut, written=whole.groups[:cut]) for cut in cuts))

    whole, rests = trained_engine.run(whole_and_rests())
    assert kinds_of(whole.told) == [*kinds, "finished"]
    assert len(rests) >= 5
    num_prompt, num_completion, _, num_reasoning = whole.summary["usage"]
    assert (num_reasoning > 0) is ("reasoning" in kinds)
    for cut, rest in enumerate(rests, 1):
        assert rest.told == whole.told[cut:]
        assert rest.summary["finish_reasons"] == whole.summary["finish_reasons"]
        usage = rest.summary["usage"]
        assert (usage[0], usage[1], usage[3]) == (num_prompt, num_completion, num_reasoning)
        assert usage[2] <= num_prompt


def test_pieces_that_end_amid_a_character_tell_their_tokens(trained_engine, ask):
    whole = trained_engine.run(ask(CASES["characters of many tokens"][0]))
    assert sum(not events for _, events in whole.told) >= 5
    text = "".join(event[2] for _, events in whole.told for event in events if event[0] == "text")
    assert text == LOUD


def test_a_stop_string_is_found_across_the_cut(trained_engine, ask):
    asked = CASES["text up to a stop string"][0]
    whole = trained_engine.run(ask(asked))
    said = trained_engine.run(ask({"question": asked["question"]}))
    text, uncut = ("".join(e[2] for _, events in one.told for e in events if e[0] == "text") for one in (whole, said))
    assert uncut.startswith(text + "demo model")


def test_a_frequency_penalty_changes_what_is_said(trained_engine, ask):
    whole = trained_engine.run(ask(CASES["letters under a frequency penalty"][0]))
    assert whole.told != trained_engine.run(ask(LETTERS)).told


@pytest.mark.parametrize("name", ["text", "text up to a stop string", "text of its greatest length", "a call"])
def test_an_answer_that_was_written_to_its_end_is_its_end_alone(trained_engine, ask, name, monkeypatch):
    asked, _ = CASES[name]
    whole = trained_engine.run(ask(asked))
    monkeypatch.setattr(trained_engine.client.engine_core, "add_request_async", None)
    rest = trained_engine.run(ask(asked, written=whole.groups))
    assert rest.told == [([], [whole.told[-1][1][-1]])]
    assert rest.summary["usage"] == [*whole.summary["usage"][:2], 0, whole.summary["usage"][3]]
    assert rest.summary["finish_reasons"] == whole.summary["finish_reasons"]


def test_an_answer_ends_where_its_length_does_whoever_wrote_it(trained_engine, ask):
    whole = trained_engine.run(ask({"question": "Who are you?"}))
    rest = trained_engine.run(ask({"question": "Who are you?", "max_tokens": 5}, written=whole.groups[:5]))
    assert rest.told == [([], [["finished", 0, "length"]])]
    assert rest.summary["usage"][1] == 5


def test_pieces_are_what_they_were_where_nobody_asks_for_tokens(trained_engine, ask):
    for asked in (CASES["text"][0], CASES["two calls after a thought"][0]):
        told = trained_engine.run(ask(asked))
        plain = trained_engine.run(ask(asked, tells_tokens=False))
        kept = [piece for piece, (_, events) in zip(told.pieces, told.told, strict=True) if events]
        assert [orjson.dumps(orjson.loads(piece)[1:]) for piece in kept if b'"tool_call"' not in piece] == [
            piece for piece in plain.pieces if b'"tool_call"' not in piece
        ]
        wire = trained_engine.run(ask(asked, render="wire"))
        assert wire.pieces[0].startswith(b'data: {"id":')


def test_log_probabilities_are_those_of_the_tokens_that_are_new(trained_engine, ask):
    asked = {"question": "Who are you?", "logprobs": True, "top_logprobs": 1}
    whole = trained_engine.run(ask(asked))
    rest = trained_engine.run(ask(asked, written=whole.groups[:4]))
    assert rest.groups == whole.groups[4:]
    for (_, events), (_, expected) in zip(rest.told, whole.told[4:], strict=True):
        shown, shown_before = ([event for event in said if event[0] == "logprobs"] for said in (events, expected))
        assert [token["token"] for event in shown for token in event[2]] == [
            token["token"] for event in shown_before for token in event[2]
        ]
        assert sum(len(event[2]) for event in shown) <= 1


def test_a_prefix_that_is_cached_counts_as_far_as_the_prompt_goes(trained_engine, ask):
    asked = {"question": TWO_CITIES, "tools": [WEATHER]}
    whole = trained_engine.run(ask(asked, cache_salt="one"))
    rest = trained_engine.run(ask(asked, cache_salt="one", written=whole.groups[:-1]))
    num_prompt, num_completion, num_cached, _ = rest.summary["usage"]
    num_read = num_prompt + num_completion - 1
    assert num_prompt < (num_read - 1) // BLOCK * BLOCK  # The cache holds whole blocks, and one token is always read.
    assert num_cached == num_prompt


def test_tokens_that_the_grammar_refuses_fail_the_request_alone(trained_engine, ask):
    async def scenario():
        text = await ask(CASES["text"][0])
        refused, served = await asyncio.gather(
            ask(IN_JSON, 1, written=text.groups[:3]), ask(IN_JSON, 2), return_exceptions=True
        )
        return refused, served

    refused, served = trained_engine.run(scenario())
    assert isinstance(refused, EngineDied)
    assert served.summary["finish_reasons"] == ["stop"]


def test_a_guided_answer_does_not_go_on_with_a_scheduler_that_cannot_lead_its_grammar(trained_engine, ask, monkeypatch):
    whole = trained_engine.run(ask(IN_JSON))
    monkeypatch.setattr(trained_engine.client.vllm_config.scheduler_config, "scheduler_cls", None)
    with pytest.raises(EngineDied):
        trained_engine.run(ask(IN_JSON, written=whole.groups[:3]))


def test_both_schedulers_go_on():
    from deployments.replica.resume.grammar import ResumingScheduler
    from deployments.replica.scheduling.scheduler import AsyncInteractiveFirst, InteractiveFirst

    for scheduler in (InteractiveFirst, AsyncInteractiveFirst):
        assert scheduler.add_request is ResumingScheduler.add_request
