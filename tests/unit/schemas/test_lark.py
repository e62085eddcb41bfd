"""Grammars of Lark in EBNF: what each part becomes, and what cannot be said."""

import contextlib

import pytest

from serve_app.schemas.lark import is_lark, lark_to_ebnf, regex_to_ebnf
from serve_app.schemas.lark_regex import LarkRefused
from serve_app.schemas.lark_terminals import COMMON


def test_ebnf_is_told_from_lark_by_its_rules_alone():
    assert is_lark('start: "a"')
    assert is_lark('start: "::="  // ::=')
    assert not is_lark('root ::= "a"')
    assert not is_lark('# a: b\nroot ::= "a: b"')


PARTS = {
    '"a" "b"': '"a" "b"',
    '"a" | "b"': '"a" | "b"',
    '"#" "//"  // comment': '"#" "//"',
    '["a"]': '( "a" )?',
    '("a" | "b")+': '( "a" | "b" ) +',
    '"a"~3': '"a" {3,3}',
    '"a" ~ 2..4': '"a" {2,4}',
    '"a".."z"': "[a-z]",
    '"]".."^"': "[\\]-\\^]",
    r'"\n\x41\u00e9\"\\\d"': r'"\nA\u00e9\"\\\\d"',
    '"a" -> name': '"a"',
    '"a" |': '"a" | ""',
    "": '""',
    '| "a"': '"" | "a"',
    "/[0-9]+/": "([0-9] +)",
    r"/\d\.\w/": '([0-9] "." [0-9A-Z_a-z])',
    r"/[\d\-]\"/": r'([\-0-9] "\"")',
    r"/[\w-]/": r"([\-0-9A-Z_a-z])",
    r"/[^\n\d]/": r"([\u0000-\t\u000b-/:-\u007f])",
    r"/[\s\S]+/": r"([^\ud800-\udfff] +)",
    r"/[\S\x00-\u2fff\ue000-\uffff]/": r"([^\u3000\ud800-\udfff])",
    r"/\D\W/": r"([\u0000-/:-\u007f] [\u0000-/:-@\[-\^`{-\u007f])",
    r"/\x41\u00e9[\x30-\x39]\f/": r'("A" "\u00e9" [0-9] "\u000c")',
    "/(?P<word>a)|b{2}c{,3}d{1,}{/": '(( "a" ) | "b" {2,2} "c" {0,3} "d" {1,} "{")',
    "/a|/": '("a" | "")',
    "/[]a]/": "([\\]a])",
    "/(?:ab|c)*?/": '(( "a" "b" | "c" ) *)',
    "/./": r"([^\n\ud800-\udfff])",
}


@pytest.mark.parametrize("body", PARTS)
def test_each_part_is_said_in_ebnf(body):
    said = lark_to_ebnf(f"start: {body}").removeprefix("root ::= rule_start\nrule_start ::= ")
    assert said == PARTS[body]


def test_rules_are_named_apart_and_the_one_that_starts_becomes_the_root():
    said = lark_to_ebnf('root.2: "b"\n?start: root\n  | OTHER\nOTHER: "c"\n')
    assert said.splitlines() == [
        "root ::= rule_start",
        'rule_root ::= "b"',
        "rule_start ::= rule_root | rule_OTHER",
        'rule_OTHER ::= "c"',
    ]
    assert lark_to_ebnf('first: "b"').startswith("root ::= rule_first\n")


REFUSED = {
    "%import python.INT\nstart: INT": "'%import python.INT'",
    "%import common.PYTHON\nstart: PYTHON": "no terminal 'PYTHON'",
    "%import common.INT\nstart: INT\nINT: /x/": "'INT' is there twice",
    'start: "a"\n%ignore " "': "'%ignore",
    "start: /[b-a]/": "'b-a'",
    r"start: /[^\s\S]/": "matches no character",
    r"start: /[\b]/": "regular expression",
    r"start: /\ud800/": "regular expression",
    r'start: "\ud800"': "no character",
    'start: "a" start': "'start' never ends",
    'start: a | b\na: b\nb: (a | "x" b) "y"': "never ends",
    'start: "a"i': "flags",
    "start: /a/i": "flags",
    "start: /a(?=b)/": "regular expression",
    "start: /^a/": "regular expression",
    r"start: /\bword/": "regular expression",
    "start: other": "'other' is nowhere",
    'start: "a"\nstart: "b"': "'start' is there twice",
    "yes or no": "does not begin with a rule",
    "": "no rule",
    'start: "a".."bc"': "range",
    'start: "a"..': "range",
    "start: list{a}": "'{'",
    "start: a: b": "out of place",
}


@pytest.mark.parametrize("grammar", REFUSED)
def test_what_cannot_be_said_is_refused_with_the_reason(grammar):
    with pytest.raises(LarkRefused, match=REFUSED[grammar].replace("{", r"\{")):
        lark_to_ebnf(grammar)


def test_common_terminals_are_imported_with_and_without_another_name():
    said = lark_to_ebnf(
        "start: LF INT (COMMA NUMBER)*\n%import common.LF\n%import common.INT -> COMMA // a comment\n"
        "%import common (INT, NUMBER)"
    )
    lines = dict(line.split(" ::= ") for line in said.splitlines())
    assert list(lines) == ["root", "rule_start", "rule_LF", "rule_COMMA", "rule_INT", "rule_NUMBER"]
    assert lines["rule_LF"] == r'("\n")'
    assert lines["rule_COMMA"] == lines["rule_INT"] == "([0-9] +)"


@pytest.mark.parametrize("name", COMMON)
def test_each_common_terminal_can_be_said(name):
    assert lark_to_ebnf(f"start: {name}\n%import common.{name}").count("::=") == 3


@pytest.mark.parametrize(
    "grammar",
    [
        'start: start "a" | "b"',
        'start: "a" (start | other*)\nother: "x" other | start',
        'start: ["a" start]',
        'start: ("a" start)?',
        'start: "a" start~0..2',
        "start: a\na: b | start\nb: /x/",
    ],
)
def test_a_rule_that_names_itself_may_end_elsewhere(grammar):
    assert lark_to_ebnf(grammar)


_IMPORTS = (
    'start: "a"\n%import common.WS{}!',
    'start: "a"\n%import common.WS ->{}!',
    'start: "a"\n%import common.{}!',
    'start: "a"\n%import common({}!',
)


@pytest.mark.timeout(5)
@pytest.mark.parametrize("text", ["[a]", "[", '\\"', "\\S", "[^a]", "(", '"', "/", "a+", "\\S[^a]", " ", "a,"])
@pytest.mark.parametrize("around", ["start: /{}", "start: /{}/", 'start: "{}', "start: {}", *_IMPORTS])
def test_no_grammar_takes_long_to_be_read(text, around):
    grammar = around.format(text * (19_000 // len(text)))
    is_lark(grammar)
    with contextlib.suppress(LarkRefused):
        lark_to_ebnf(grammar)


def test_a_grammar_of_any_size_is_read():
    chain = "\n".join(f"r{number}: r{number + 1}" for number in range(1_500))
    assert lark_to_ebnf(f'{chain}\nr1500: "x"').count("\n") == 1_501
    nested = "(" * 9_000 + '"a"' + ")" * 9_000
    assert lark_to_ebnf(f"start: {nested}").startswith("root")


EXPRESSIONS = {
    "^ab$": 'root ::= "a" "b"',
    "a|b": 'root ::= "a" | "b"',
    r"^\$$": 'root ::= "$"',
    r"[$]": "root ::= [$]",
    "": 'root ::= ""',
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_matches_whole_texts(expression):
    assert regex_to_ebnf(expression) == EXPRESSIONS[expression]


@pytest.mark.parametrize("expression", ["a^b", "(a$)b", r"\ba", "(?i)a", r"(a)\1", "a\\"])
def test_an_expression_that_cannot_be_said_is_refused(expression):
    with pytest.raises(LarkRefused):
        regex_to_ebnf(expression)
