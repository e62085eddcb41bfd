"""Whatever a custom tool's grammar lets a model write to its end is a text of it, by the word of `lark` and `re`."""

import asyncio
import json
import random
import re
from functools import cache

import lark
import pytest

from deployments.models.contract.errors import RequestRejected
from deployments.replica.schemas.budget import SchemaCompiler
from deployments.replica.schemas.requested import arguments_with, forms_to_compile, in_json
from serve_app.schemas.lark import lark_to_ebnf, regex_to_ebnf
from serve_app.schemas.lark_terminals import COMMON
from tests.contract.schemas import walking

CHANGES = r"""
start: opening change+ closing
opening: "*** Open" LF
closing: "*** Close" LF?
change: "*** Change: " name LF line+ -> change | removal
removal: "*** Remove: " name LF
name: /(.+)/
line: ("+" | "-" | " ") /(.*)/ LF -> line

%import common.LF
"""
PROGRAM = r"""
start: with_options | SOURCE
with_options: OPTIONS NEWLINE SOURCE
OPTIONS: /[ \t]*\/\/ @run:[^\r\n]*/
NEWLINE: /\r?\n/
SOURCE: /[\s\S]+/
"""
SUMS = """
start: sum
sum: product SP "+" SP sum -> more
   | product
product: factor ("*" factor)*
factor: INT | "(" sum ")" | CNAME ["'"]
SP: " "
%import common.INT
%import common (CNAME)
"""
QUOTES = r"""
start: "say \"" WORD "\"" BACK? ESCAPED_STRING+ other
BACK: "\\" /["\\\t\x01-\x1f]/
other: /[^\w\n]+/ | /\S\D/ | "\t".."\r"
%import common.ESCAPED_STRING
%import common.WORD
"""
GRAMMARS = {"changes": CHANGES, "program": PROGRAM, "sums": SUMS, "quotes": QUOTES}
GRAMMARS |= {name: f"start: {name}\n%import common.{name}\n" for name in COMMON}
EXPRESSIONS = [
    r"^\d{4}-\d{2}-\d{2}( \d\d:\d\d)?$",
    r"SELECT (\*|\w+(, \w+)*) FROM \"?[a-z]+\"?( WHERE [^;\n]*)?;",
    r"[\s\S]{1,20}",
    r"(?:\\.|[^\\\x00-\x1f])*\n",
]
ENDINGS = frozenset(b'\\n"*/}C1')


@cache
def reader(grammar):
    """Return Lark's own parser of a grammar; its lexer takes no expression of the empty text."""
    return lark.Lark(grammar.replace("/(.*)/", "[/(.+)/]"), parser="earley", lexer="dynamic_complete")


def arguments_grammar(ebnf):
    return arguments_with(in_json(ebnf))


def written(ebnf, number, wanted="", seed=1):
    """Return what models that know nothing write as arguments, read as JSON, to their ends."""
    grammar = walking.compiled_grammar(arguments_grammar(ebnf))
    rand = random.Random(seed)
    said = list(walking.answers(grammar, rand, wanted, number=number, endings=ENDINGS, most_bytes=300))
    arguments = [json.loads(one) for one in said]
    assert all(list(one) == ["input"] for one in arguments)
    return [one["input"] for one in arguments]


@pytest.mark.parametrize("name", GRAMMARS)
def test_what_is_held_to_a_grammar_is_a_text_of_it(name):
    texts = written(lark_to_ebnf(GRAMMARS[name]), 120)
    assert len(texts) > 20
    for text in texts:
        reader(GRAMMARS[name]).parse(text)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_is_held_to_an_expression_is_matched_as_a_whole(expression):
    texts = written(regex_to_ebnf(expression), 120)
    assert len(texts) > 20
    assert all(re.fullmatch(expression, text) for text in texts)


TEXTS = {
    "changes": [
        '*** Open\n*** Change: src/a b.py\n-print(\'"\\n\')\n+\tprint("é\\\\")\r\n \n*** Close\n',
        "*** Open\n*** Remove: 名前.txt\n*** Close",
    ],
    "program": ['const a = `x`;\n\treturn "\\u0041" \u2028\u00a0\U0001f600', '  // @run: {"a": 1}\r\n\x00\x1f\x7f'],
    "sums": ["1 + 2*(x' + y)"],
    "quotes": ['say "yes"\\\x01"a \\" b""" !', 'say "no""\\\\"\t'],
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_text_of_a_grammar_can_be_written(name):
    ebnf = lark_to_ebnf(GRAMMARS[name])
    plain = walking.compiled_grammar(ebnf)
    in_json = walking.compiled_grammar(arguments_grammar(ebnf))
    for text in TEXTS[name]:
        reader(GRAMMARS[name]).parse(text)
        if "\0" not in text:
            assert walking.takes(plain, text)
        assert walking.takes(in_json, json.dumps({"input": text}, ensure_ascii=False))
        assert not walking.takes(in_json, json.dumps({"input": text + "\n\n"}, ensure_ascii=False)) or name == "program"


def test_white_space_around_the_text_has_a_bound():
    grammar = walking.compiled_grammar(arguments_grammar('root ::= "a"'))
    assert walking.takes(grammar, '{\n"input" : "a"\n}')
    assert not walking.takes(grammar, '{  "input": "a"}')
    assert not walking.takes(grammar, '{"input": "a", "b": 1}')


@pytest.fixture(scope="module")
def judge():
    loop, compiler = asyncio.new_event_loop(), SchemaCompiler(wall_s=200)

    def judge(definition, name="f"):
        tools = [{"type": "function", "function": {"name": name, "parameters": {}, "strict": True}}]
        body = {"tools": tools, "custom_tools": {name: lark_to_ebnf(definition)}}
        (form,) = forms_to_compile(body)
        return loop.run_until_complete(compiler.check(form))

    yield judge
    loop.run_until_complete(compiler.aclose())
    loop.close()


@pytest.mark.parametrize("name", ["changes", "program", "sums", "quotes"])
def test_ordinary_grammars_are_compiled(judge, name):
    assert judge(GRAMMARS[name])


HOSTILE = {
    "a rule that is itself twice": 'start: start start | "a"',
    "rules that may be nothing": 'start: s s s s s s\ns: "a" s | s "a" | ""',
    "repetitions in repetitions": "start: /((a*b*)*c?)*/",
    "no expression": "start: /(a/",
    "no bracket": 'start: ("a"',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_grammars_are_refused_by_the_field_that_holds_them(judge, name):
    with pytest.raises(RequestRejected) as caught:
        judge(HOSTILE[name])
    assert caught.value.param == "tools[0].custom.format.grammar.definition"
    assert caught.value.message.startswith(f"Invalid value for '{caught.value.param}': it ")


def test_a_deep_grammar_ends_only_its_own_trial(judge):
    with pytest.raises(RequestRejected):
        judge("start: " + "(" * 9_000 + '"a"' + ")" * 9_000)
    assert judge('start: "a"')
