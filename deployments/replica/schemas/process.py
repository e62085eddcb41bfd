"""A process that tries out whether a JSON schema can be turned into a grammar cheaply; `budget` starts it.

It loads xgrammar once and then forks a child for each schema. The child compiles within bounds of time and memory,
and its exit status is the verdict: a schema that is a bomb ends a child and nothing else. Knows nothing of requests.

In: one line of JSON with the bounds and the tokenizer, then frames of an id, a length (both four bytes, little
endian) and that many bytes of schema. Out: "ready", then a line "ID VERDICT" for each. Ends when its input ends.
"""

import io
import json
import os
import selectors
import signal
import struct
import sys
from typing import Any, BinaryIO

from deployments.bounded_process import Bounds

HEADER = struct.Struct("<II")
OK = "ok"
INVALID = "invalid"
TOO_COSTLY = "too_costly"

_EXIT_INVALID = 3
_EXIT_TOO_COSTLY = 4
_VERDICTS = {0: OK, _EXIT_INVALID: INVALID}
_SMALL_VOCABULARY = [bytes([byte]) for byte in range(256)]


def main() -> None:
    """Serve until the input ends."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    config = json.loads(source.readline())
    os.nice(5)  # Generating goes first.
    import xgrammar  # Slow, and wanted in this process only.

    if config["tokenizer_info"] is None:
        tokenizer = xgrammar.TokenizerInfo(
            _SMALL_VOCABULARY, vocab_type=xgrammar.VocabType.RAW, vocab_size=len(_SMALL_VOCABULARY), stop_token_ids=[0]
        )
    else:
        tokenizer = xgrammar.TokenizerInfo.deserialize_json(config["tokenizer_info"])
    _compile(tokenizer, '{"type": "object"}', any_whitespace=True)
    _say(sink, "ready")
    _serve(source, sink, config, tokenizer)
    os._exit(0)  # Taking the interpreter down takes most of a second, and nothing is left to do.


def _serve(source: BinaryIO, sink: BinaryIO, config: dict[str, Any], tokenizer: Any) -> None:
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
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
                schema = _read_exactly(source, length)
                if schema is None:
                    return
                running[_fork(schema, config, tokenizer)] = number
            _reap(running, sink)


def _reap(running: dict[int, int], sink: BinaryIO) -> None:
    for pid in list(running):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            verdict = _VERDICTS.get(os.waitstatus_to_exitcode(status), TOO_COSTLY)
            _say(sink, f"{running.pop(pid)} {verdict}")


def _fork(schema: bytes, config: dict[str, Any], tokenizer: Any) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = _EXIT_TOO_COSTLY
    try:
        signal.set_wakeup_fd(-1)
        os.close(0)
        os.close(1)
        Bounds(**config["bounds"]).set()
        _compile(tokenizer, schema.decode(), any_whitespace=config["any_whitespace"])
        status = 0
    except MemoryError:
        pass
    except Exception as error:
        if "bad_alloc" not in str(error):
            status = _EXIT_INVALID
    finally:
        os._exit(status)


def _compile(tokenizer: Any, schema: str, *, any_whitespace: bool) -> None:
    import xgrammar

    # One thread: those of a pool would not survive the fork, and the budget is of CPU time.
    compiler = xgrammar.GrammarCompiler(tokenizer, max_threads=1, cache_enabled=False)
    compiler.compile_json_schema(schema, any_whitespace=any_whitespace)


def _read_exactly(source: BinaryIO, size: int) -> bytes | None:
    buffer = io.BytesIO()
    while buffer.tell() < size:
        # Unbuffered, as the selector sees only what is still in the pipe.
        piece = os.read(source.fileno(), size - buffer.tell())
        if not piece:
            return None
        buffer.write(piece)
    return buffer.getvalue()


def _say(sink: BinaryIO, line: str) -> None:
    sink.write(f"{line}\n".encode())
    sink.flush()
