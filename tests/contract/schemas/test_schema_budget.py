"""The schema compiler against the real xgrammar: bombs are refused, and nothing else suffers from them."""

import asyncio
import json
import os
import signal

import psutil
import pytest

from deployments.models.contract.errors import Overloaded, RequestRejected
from deployments.replica.schemas.budget import SchemaCompiler, Verdict, describe_tokenizer
from deployments.replica.schemas.process import INVALID, OK, TOO_COSTLY
from deployments.replica.schemas.requested import DEFAULT_PARAM, Requested, forms_to_compile
from deployments.replica.signals import SlowGrammar

STRING = {"type": "string"}
SMALL = json.dumps({"type": "object", "properties": {"a": STRING}, "required": ["a"]})
# Each takes a compiler in an engine's own process between ten seconds and minutes, or gigabytes.
BOMBS = {
    "enum of long strings": {"enum": [f"x{i}" * 40 for i in range(20_000)]},
    "counted properties": {"type": "object", "properties": {f"p{i}": STRING for i in range(400)}, "minProperties": 200},
    "many properties": {"type": "object", "properties": {f"p{i}": STRING for i in range(5_000)}},
}

PATIENT_S = 200
"""Neighbours do not decide which form costs too much: processor time does."""


@pytest.fixture(scope="module")
def loop():
    """One event loop for the module, as the process is slow to start."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def compiler(loop):
    compiler = SchemaCompiler(wall_s=PATIENT_S)
    loop.run_until_complete(compiler.start())
    yield compiler
    loop.run_until_complete(compiler.aclose())


def schema_form(text):
    return Requested(DEFAULT_PARAM, text)


def verdict(loop, compiler, schema, *, param=DEFAULT_PARAM, account="", **options):
    text = schema if isinstance(schema, str) else json.dumps(schema)
    try:
        loop.run_until_complete(compiler.check(Requested(param, text, **options), account))
    except RequestRejected as error:
        return error
    return None


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        json.loads(SMALL),
        {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 1_000},
        {"$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
        {"type": "string", "pattern": "^([a-z0-9]+-)*[a-z0-9]+$"},
        {"type": "string", "pattern": "^(a*)*b$"},
        {"type": "string", "pattern": "^[a-z]{1,20000}$"},
        {"type": "string", "maxLength": 500},
        {"enum": [f"value {i}" for i in range(200)]},
    ],
    ids=range(10),
)
def test_ordinary_schema_is_accepted(loop, compiler, schema):
    assert verdict(loop, compiler, schema) is None


@pytest.mark.parametrize("schema", BOMBS.values(), ids=BOMBS.keys())
def test_bomb_is_refused_as_too_costly(loop, compiler, schema):
    error = verdict(loop, compiler, schema)
    assert error is not None
    assert "too much time or memory" in error.message
    assert (error.param, error.code) == (DEFAULT_PARAM, "invalid_value")


# Each is compiled at once, and then takes 10 to 1,000 ms for each token.
SLOW = {
    "repetition in a repetition": ("regex", "(a*b*)*c"),
    "three in one another": ("regex", "(([a-z]+[a-z0-9]*)*[0-9]*)*!"),
    "after a beginning": ("regex", "hello (x+x+)+!"),
    "rule that is itself twice": ("grammar", 'root ::= root root | "a"'),
    "rules that are nothing": ("grammar", 'root ::= s s s s s s\ns ::= "a" s | s "a" | ""'),
    "tag": ("structural_tag", '{"format": {"type": "regex", "pattern": "(a*b*)*c"}}'),
}


@pytest.mark.parametrize("name", SLOW)
def test_what_is_slow_to_follow_is_refused_as_too_costly(loop, compiler, name):
    form, text = SLOW[name]
    error = verdict(loop, compiler, text, param="field", form=form)
    assert error is not None
    assert error.message.startswith("Invalid value for 'field': it takes too much time")


ORDINARY = {
    "date": ("regex", r"\d{4}-\d{2}-\d{2}"),
    "words": ("regex", "([a-z]+ )*[a-z]+"),
    "e-mail": ("regex", r"[\w.]+@[\w.]+\.com\n"),
    "sums": ("grammar", 'root ::= term ("+" term)*\nterm ::= [0-9]+ | "(" root ")"'),
    "without end": ("grammar", 'root ::= "a" root'),  # The answer ends at `max_tokens`.
    "SQL": ("grammar", 'root ::= "SELECT " name (", " name)* " FROM " name\nname ::= [a-z]+'),
    "tag": (
        "structural_tag",
        '{"structures": [{"begin": "<f>", "schema": {"type": "object"}, "end": "</f>"}], "triggers": ["<f>"]}',
    ),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_forms_are_accepted(loop, compiler, name):
    form, text = ORDINARY[name]
    assert verdict(loop, compiler, text, form=form) is None


NO_FORM = [
    ("grammar", "root ::= nowhere"),
    ("structural_tag", "{}"),
    ("grammar", "root ::= root"),  # No token fits it.
    ("grammar", 'root ::= "a" end\nend ::= end'),  # None fits after the first.
]


@pytest.mark.parametrize(("form", "text"), NO_FORM)
def test_a_form_that_is_none_is_refused_as_such(loop, compiler, form, text):
    error = verdict(loop, compiler, text, param="field", form=form)
    assert error is not None
    assert error.message == "Invalid value for 'field': it cannot be turned into a grammar."


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (
            {"type": "foo"},
            "'type' at 'type' must be one or more of null, boolean, number, integer, string, array, object.",
        ),
        ({"$ref": "#/nowhere"}, "'$ref' at '$ref' points at a part that the schema does not have."),
        ("not json", "it cannot be turned into a grammar."),
        ("[]", "it is no schema, which is an object or a boolean."),
        ('{"type":', "it cannot be turned into a grammar."),
    ],
)
def test_schema_that_is_no_schema_is_refused_as_such(loop, compiler, schema, why):
    error = verdict(loop, compiler, schema, param="field")
    assert error is not None
    assert error.message == f"Invalid schema for 'field': {why}"
    assert error.param == "field"


def test_minimum_of_items_costs_nothing_or_is_refused(loop, compiler):
    before = cpu_s_of(compiler)
    verdict(
        loop,
        compiler,
        {"type": "array", "items": {"type": "array", "items": STRING, "minItems": 10**7}, "minItems": 10**7},
    )
    assert cpu_s_of(compiler) - before < 4  # Two for the trial.


def cpu_s_of(compiler) -> float:
    """The processor time of what tries schemas, with its trials that have ended."""
    times = psutil.Process(compiler._process._process.pid).cpu_times()
    return times.user + times.system + times.children_user + times.children_system


def test_verdicts_are_remembered(loop, compiler):
    bomb = json.dumps(BOMBS["counted properties"])
    verdict(loop, compiler, bomb)
    verdict(loop, compiler, SMALL)
    num_asked = compiler._process._last_number
    assert verdict(loop, compiler, bomb) is not None
    assert verdict(loop, compiler, SMALL) is None
    assert compiler._process._last_number == num_asked


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def test_a_form_that_was_slow_is_refused_to_that_account_alone_and_for_a_while(loop):
    clock = Clock()
    compiler = SchemaCompiler(clock=clock)
    with pytest.raises(SlowGrammar), compiler.following([Requested("field", "[ab]+", "regex")], "one"):
        raise SlowGrammar
    error = verdict(loop, compiler, "[ab]+", form="regex", account="one")
    assert "an answer before took too much time" in error.message
    assert verdict(loop, compiler, "[ab]+", form="regex", account="another") is None
    assert verdict(loop, compiler, "[ab]+", form="regex", account="one") is not None
    clock.now_s = 599
    assert verdict(loop, compiler, "[ab]+", form="regex", account="one") is not None
    clock.now_s = 600
    assert verdict(loop, compiler, "[ab]+", form="regex", account="one") is None
    loop.run_until_complete(compiler.aclose())


def test_a_form_that_cost_too_much_is_tried_again_after_a_while_and_an_invalid_one_is_not(loop, monkeypatch):
    clock = Clock()
    compiler = SchemaCompiler(clock=clock)
    tried, answers = [], {"(a*)*": TOO_COSTLY, "(a": INVALID, "a": OK}

    async def ask(self, asked):
        tried.append(asked.decode().removeprefix("regex\n"))
        return Verdict(answers[tried[-1]])

    monkeypatch.setattr("deployments.replica.schemas.budget._Process.ask", ask)
    for clock.now_s in (0, 599, 600):
        for text in answers:
            assert (verdict(loop, compiler, text, form="regex") is None) == (text == "a")
    assert tried == [*answers, "(a*)*"]
    loop.run_until_complete(compiler.aclose())


def test_a_trial_that_a_busy_machine_could_not_end_in_time_is_no_verdict(loop):
    compiler = SchemaCompiler(cpu_s=60, wall_s=0, memory_bytes=8 * 1024**3)
    bomb = json.dumps(BOMBS["counted properties"])
    for _ in range(2):  # The second would be refused at once if the first had been remembered.
        with pytest.raises(Overloaded, match="in time"):
            loop.run_until_complete(compiler.check(schema_form(bomb)))
    loop.run_until_complete(compiler.aclose())


def test_small_schema_does_not_wait_for_a_bomb(loop, compiler):
    async def race():
        bomb = json.dumps({**BOMBS["many properties"], "title": "race"})
        slow = asyncio.create_task(compiler.check(schema_form(bomb)))
        await asyncio.sleep(0)
        await compiler.check(schema_form(json.dumps({**json.loads(SMALL), "title": "race"})))
        assert not slow.done()
        with pytest.raises(RequestRejected):
            await slow

    loop.run_until_complete(race())


def test_same_schema_is_tried_once_for_all_who_wait(loop, compiler):
    async def crowd():
        text = json.dumps({**json.loads(SMALL), "title": "crowd"})
        tasks = [asyncio.create_task(compiler.check(schema_form(text))) for _ in range(50)]
        await asyncio.sleep(0)
        assert len(compiler._trials) == 1
        tasks[0].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] + [str] * 49

    loop.run_until_complete(crowd())


def test_too_many_new_schemas_at_once_are_refused_as_overload(loop, compiler):
    async def flood():
        texts = [json.dumps({**json.loads(SMALL), "title": f"flood {i}"}) for i in range(80)]
        return await asyncio.gather(*map(compiler.check, map(schema_form, texts)), return_exceptions=True)

    results = loop.run_until_complete(flood())
    assert {type(result) for result in results} == {Overloaded, str}


def test_process_that_was_killed_is_replaced(loop):
    async def scene():
        compiler = SchemaCompiler()
        await compiler.start()
        waiting = asyncio.create_task(compiler.check(schema_form(json.dumps(BOMBS["counted properties"]))))
        await asyncio.sleep(0.1)
        assert compiler._process._answers
        os.kill(compiler._process._process.pid, signal.SIGKILL)
        with pytest.raises(Overloaded):
            await waiting
        await compiler.check(schema_form(SMALL))
        await compiler.aclose()

    loop.run_until_complete(scene())


def test_memory_is_bounded(loop):
    compiler = SchemaCompiler(memory_bytes=16 * 1024 * 1024, cpu_s=20, wall_s=PATIENT_S)
    # Within the time allowed, it takes some forty megabytes.
    error = verdict(loop, compiler, {"enum": [f"x{i}" * 20 for i in range(2_000)]})
    assert error is not None
    assert "too much time or memory" in error.message
    loop.run_until_complete(compiler.aclose())


def test_cost_is_that_of_the_tokenizer_when_it_is_known(loop, tmp_path):
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = {char: index for index, char in enumerate([*map(chr, range(32, 127)), "</s>"])}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="</s>")), eos_token="</s>"
    )
    compiler = SchemaCompiler(describe_tokenizer(tokenizer, len(words)), any_whitespace=False, wall_s=PATIENT_S)
    assert verdict(loop, compiler, SMALL) is None
    assert verdict(loop, compiler, BOMBS["counted properties"]) is not None
    loop.run_until_complete(compiler.aclose())


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": STRING}}}}
OTHER = {"type": "function", "function": {"name": "g"}}
STRICT = {"type": "function", "function": {**TOOL["function"], "strict": True}}


@pytest.mark.parametrize(
    ("body", "params"),
    [
        ({}, []),
        ({"response_format": {"type": "json_object"}}, []),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}}, [DEFAULT_PARAM]),
        ({"structured_outputs": {"regex": "a+"}}, ["structured_outputs.regex"]),
        ({"structured_outputs": {"choice": ["a", 'say "b"']}}, ["structured_outputs.choice"]),
        ({"structured_outputs": {"json": '{"type": "object"}'}}, ["structured_outputs.json"]),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, ["structured_outputs.grammar"]),
        ({"structured_outputs": {"json_object": True}}, []),
        ({"tools": [TOOL]}, []),
        ({"tools": [TOOL], "tool_choice": "auto"}, []),
        ({"tools": [STRICT]}, ["tools"]),
        ({"tools": [OTHER, STRICT], "tool_choice": "auto"}, ["tools"]),
        ({"tools": [STRICT], "tool_choice": "none"}, []),
        ({"tools": [TOOL, OTHER], "tool_choice": "required"}, ["tools"]),
        ({"tools": [TOOL, OTHER], "tool_choice": {"type": "function", "function": {"name": "g"}}}, ["tools"]),
    ],
)
def test_schemas_that_an_engine_would_compile_are_found(loop, compiler, body, params):
    found = forms_to_compile(body)
    assert [asked.param for asked in found] == params
    for param, text, form, tools in found:
        assert verdict(loop, compiler, text, param=param, form=form, tools=tools) is None


def test_definitions_of_tools_are_found(loop, compiler):
    parameters = {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": STRING}}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    [(_, text, form, tools)] = forms_to_compile({"tools": [tool], "tool_choice": "required"})
    assert verdict(loop, compiler, text, form=form, tools=tools) is None
