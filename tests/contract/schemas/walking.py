"""Walks the grammars that xgrammar makes of schemas, a byte at a time, as a model would that knows nothing of them."""

import json
import random
from collections.abc import Iterator
from functools import cache

import numpy

MOST_BYTES = 160
_STOP = 0
_ENDINGS = frozenset(b'"]}')


@cache
def _compiler():
    import xgrammar

    vocabulary = [bytes([byte]) for byte in range(256)]
    info = xgrammar.TokenizerInfo(
        vocabulary, vocab_type=xgrammar.VocabType.RAW, vocab_size=len(vocabulary), stop_token_ids=[_STOP]
    )
    return xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)


def compiled(schema, *, any_whitespace=False):
    """Return the grammar of a schema, as an engine compiles it."""
    return _compiler().compile_json_schema(json.dumps(schema), max_whitespace_cnt=None if any_whitespace else 1)


def compiled_expression(expression):
    """Return the grammar of a regular expression, as an engine compiles it."""
    return _compiler().compile_regex(expression)


def takes(grammar, text: str) -> bool:
    """Return whether an answer may be just this text."""
    import xgrammar

    matcher = xgrammar.GrammarMatcher(grammar)
    return all(matcher.accept_token(byte) for byte in text.encode()) and matcher.accept_token(_STOP)


def compiled_grammar(ebnf):
    """Return a grammar in EBNF, as an engine compiles it."""
    return _compiler().compile_grammar(ebnf)


def compiled_tag(tag):
    """Return the grammar of a structural tag, as an engine compiles it."""
    return _compiler().compile_structural_tag(tag)


def answers(
    grammar,
    random_source: random.Random,
    wanted: str = "",
    *,
    number: int = 1,
    endings: frozenset[int] = _ENDINGS,
    most_bytes: int = MOST_BYTES,
) -> Iterator[str]:
    """Yield some answers that ended: bytes of `wanted` while they are allowed, random ones otherwise.

    The `endings` are bytes that end a part, so that a walk comes to its end within `most_bytes`.
    """
    import xgrammar

    mask = xgrammar.allocate_token_bitmask(1, 256)
    for _ in range(number):
        matcher = xgrammar.GrammarMatcher(grammar)
        answer, guide = bytearray(), wanted.encode()
        while len(answer) < most_bytes:
            matcher.fill_next_token_bitmask(mask, 0)
            allowed = numpy.flatnonzero(numpy.unpackbits(mask[0].numpy().view(numpy.uint8), bitorder="little")).tolist()
            if not allowed:
                break
            if len(answer) < len(guide) and guide[len(answer)] in allowed:
                byte = guide[len(answer)]
            else:
                byte = _next(allowed, endings, random_source, is_late=len(answer) > most_bytes // 2)
            if byte == _STOP:
                yield answer.decode(errors="replace")
                break
            matcher.accept_token(byte)
            answer.append(byte)


def _next(allowed: list[int], endings: frozenset[int], random_source: random.Random, *, is_late: bool) -> int:
    if _STOP in allowed and random_source.random() < 0.5:
        return _STOP
    ends = [byte for byte in allowed if byte in endings]
    if ends and (random_source.random() < 0.3 or is_late):
        return random_source.choice(ends)
    return random_source.choice([byte for byte in allowed if byte != _STOP] or allowed)
