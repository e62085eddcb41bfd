"""Grammars of Lark in EBNF: what each part becomes, and what cannot be said."""

import pytest

from serve_app.schemas.lark import LarkRefused, is_lark, lark_to_ebnf


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
    '"a" -> name': '"a"',
    '"a" |': '"a" | ""',
    "": '""',
    '| "a"': '"" | "a"',
    "/[0-9]+/": "([0-9] +)",
    r"/\d\.\w/": '([0-9] "." [a-zA-Z0-9_])',
    r"/[\d\-]\"/": r'([0-9\-] "\"")',
    "/[]a]/": "([\\]a])",
    "/(?:ab|c)*?/": '(( "a" "b" | "c" ) *)',
    "/./": "([^\\n])",
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
    "%import common.INT\nstart: INT": "'%import'",
    'start: "a"\n%ignore " "': "'%ignore'",
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
