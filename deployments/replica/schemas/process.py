"""A process that tries whether a form can be turned into a grammar cheaply, and followed; `budget` starts it.

It loads xgrammar once, and forks a child for each form: a JSON schema, a regular expression and so on. Within bounds of
time and memory, the child rewrites the form's schemas into what grammars keep, compiles the form, and follows it for
some tokens. Its exit status is the verdict, and it writes the rewritten form: a form that is a bomb ends only a child.

In: one line of JSON with the bounds and the tokenizer, then frames of an id, a length (both four bytes, little endian)
and that many bytes: the name of the form, a line break, its text. Out: "ready", then for each frame a line with the id
and, as JSON, the verdict and its text. Ends when its input ends.
"""

import io
import json
import os
import selectors
import signal
import struct
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO

from deployments.bounded_process import Bounds
from deployments.replica.schemas.rewriting.parts import SchemaRefused
from deployments.replica.structural_tags import MOST

HEADER = struct.Struct("<II")
OK = "ok"
INVALID = "invalid"
REFUSED = "refused"
"""A schema has a keyword that cannot be kept: the text holds the position of the schema and the error message."""
TOO_COSTLY = "too_costly"
TIMED_OUT = "timed_out"
"""The machine was too busy for a verdict."""

_EXIT_INVALID = 3
_EXIT_TOO_COSTLY = 4
_EXIT_REFUSED = 5
_VERDICTS = {0: OK, _EXIT_INVALID: INVALID, _EXIT_REFUSED: REFUSED, -signal.SIGALRM: TIMED_OUT}
_MAX_TEXT_BYTES = 4 * 1024 * 1024
_WALKS = 4
_STEPS_PER_WALK = 512
_CHOICES_PER_WALK = 64
_WALKING_S = 0.25
"""CPU time of all tokens together. Most grammars take 1 to 5 microseconds a token, those that explode milliseconds."""
_SMALL_VOCABULARY = [bytes([byte]) for byte in range(256)]
_Trial = Callable[[str, str], str | None]


def main() -> None:
    """Serve until the input ends."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    config = json.loads(source.readline())
    import xgrammar  # Slow, and only this process needs it.

    if config["tokenizer_info"] is None:
        tokenizer = xgrammar.TokenizerInfo(
            _SMALL_VOCABULARY, vocab_type=xgrammar.VocabType.RAW, vocab_size=len(_SMALL_VOCABULARY), stop_token_ids=[0]
        )
    else:
        tokenizer = xgrammar.TokenizerInfo.deserialize_json(config["tokenizer_info"])
    white = [token for token, text in enumerate(tokenizer.decoded_vocab) if text.isspace()]
    _try(tokenizer, white, "json", '{"enum": ["a"], "pattern": "a"}', any_whitespace=True)
    os.nice(5)  # Generating goes first. A starting replica waits for the lines above.
    _say(sink, "ready")
    trial = partial(_try, tokenizer, white, any_whitespace=config["any_whitespace"])
    _serve(source, sink, Bounds(**{**config["bounds"], "output_bytes": _MAX_TEXT_BYTES}), trial)
    os._exit(0)  # Shutting the interpreter down would take most of a second.


def _serve(source: BinaryIO, sink: BinaryIO, bounds: Bounds, trial: _Trial) -> None:
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == woken:
                    os.read(woken, 4096)
                    continue
                header = _read_exactly(source, HEADER.size)
                if header is None:
                    return
                number, length = HEADER.unpack(header)
                asked = _read_exactly(source, length)
                if asked is None:
                    return
                answer = os.memfd_create("answer")
                running[_fork(asked, bounds, trial, answer)] = number, answer
            _reap(running, sink)


def _reap(running: dict[int, tuple[int, int]], sink: BinaryIO) -> None:
    for pid in list(running):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            number, answer = running.pop(pid)
            with os.fdopen(answer, "rb") as file:
                file.seek(0)
                text = file.read().decode()
            verdict = _VERDICTS.get(os.waitstatus_to_exitcode(status), TOO_COSTLY)
            _say(sink, f"{number} {json.dumps([verdict, text if verdict in (OK, REFUSED) else ''])}")


def _fork(asked: bytes, bounds: Bounds, trial: _Trial, answer: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = _EXIT_TOO_COSTLY
    try:
        signal.set_wakeup_fd(-1)
        os.close(0)
        os.close(1)
        bounds.set()
        form, _, text = asked.decode().partition("\n")
        tried = trial(form, text)
        if tried is not None:
            _write_all(answer, tried.encode())
            status = 0
    except MemoryError:
        pass
    except SchemaRefused as refused:
        _write_all(answer, json.dumps([refused.position, refused.sentence]).encode())
        status = _EXIT_REFUSED
    except Exception as error:
        if "bad_alloc" not in str(error):
            status = _EXIT_INVALID
    finally:
        os._exit(status)


def _write_all(sink: int, data: bytes) -> None:
    while data:
        data = data[os.write(sink, data) :]


def _try(tokenizer: Any, white: list[int], form: str, text: str, *, any_whitespace: bool) -> str | None:
    """Return the rewritten text of a form; None if it cannot be followed quickly.

    `white` are the tokens of white space.

    Raises:
        SchemaRefused: a schema has a keyword that cannot be kept.
        Exception: it cannot be compiled.
    """
    import xgrammar

    from deployments.replica.schemas.rewritten import expressions_of, rewritten_form

    # One thread: a pool's threads do not survive the fork, and the budget counts CPU time.
    compiler = xgrammar.GrammarCompiler(tokenizer, max_threads=1, cache_enabled=False)
    text, schemas = rewritten_form(form, text)
    grammars = []
    if form in ("json", "calls"):
        for schema in schemas:
            compiler.compile_json_schema(json.dumps(schema), max_whitespace_cnt=None if any_whitespace else MOST)
    elif form == "regex":
        grammars = [compiler.compile_regex(text)]
    elif form == "grammar":
        grammars = [compiler.compile_grammar(text)]
    else:
        grammars = [_compile_tag(compiler, json.loads(text), text)]
    # JSON marks where each part begins, so only its patterns may be slow to follow.
    grammars += map(compiler.compile_regex, expressions_of(schemas))
    mask = xgrammar.allocate_token_bitmask(1, tokenizer.vocab_size)
    left_s = _WALKING_S
    for grammar in grammars:
        for number in range(_WALKS):
            left_s -= _walk(xgrammar.GrammarMatcher(grammar), mask, white, number, left_s)
            if left_s <= 0:
                return None
    return text


def _compile_tag(compiler: Any, tag: dict[str, Any], text: str) -> Any:
    if "structures" not in tag:
        return compiler.compile_structural_tag(text)
    import xgrammar

    items = [
        xgrammar.StructuralTagItem(begin=one["begin"], schema=json.dumps(one["schema"]), end=one["end"])
        for one in tag["structures"]
    ]
    return compiler.compile_structural_tag(items, tag["triggers"])


def _walk(matcher: Any, mask: Any, white: list[int], number: int, most_s: float) -> float:
    """Return the CPU time of one path through a grammar, in seconds; the walk ends after `most_s`.

    A grammar that can match a text in many ways gets slower with each token. So a walk repeats its token as long as
    the grammar allows, and then takes another one, chosen by its `number`. It takes no token that ends the answer, and
    white space, which the grammar may allow without end, only if there is nothing else.

    Raises:
        ValueError: it comes to a text that no token can follow, and that is no answer: an engine would stop there.
    """
    token, num_choices, taken_s = -1, 0, 0.0
    for _ in range(_STEPS_PER_WALK):
        started = time.process_time()
        is_accepted = token >= 0 and matcher.accept_token(token)
        taken_s += time.process_time() - started
        if taken_s > most_s:
            break
        if is_accepted:
            continue
        matcher.fill_next_token_bitmask(mask, 0)
        if not mask.any():
            raise ValueError("No token can follow, and the answer is not complete.")
        allowed = _allowed(mask, matcher.stop_token_ids, white)
        num_choices += 1
        if num_choices > _CHOICES_PER_WALK or not len(allowed):
            break
        token = int(allowed[len(allowed) * number // _WALKS])
    return taken_s


def _allowed(mask: Any, stops: list[int], white: list[int]) -> Any:
    import numpy

    bits = numpy.unpackbits(mask[0].numpy().view(numpy.uint8), bitorder="little")
    bits[stops] = 0
    all_allowed = numpy.flatnonzero(bits)
    bits[white] = 0
    allowed = numpy.flatnonzero(bits)
    return allowed if len(allowed) else all_allowed


def _read_exactly(source: BinaryIO, size: int) -> bytes | None:
    buffer = io.BytesIO()
    while buffer.tell() < size:
        # Unbuffered: the selector does not see bytes in a buffer.
        piece = os.read(source.fileno(), size - buffer.tell())
        if not piece:
            return None
        buffer.write(piece)
    return buffer.getvalue()


def _say(sink: BinaryIO, line: str) -> None:
    sink.write(f"{line}\n".encode())
    sink.flush()
