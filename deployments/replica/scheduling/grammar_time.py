"""Bounds the time that the engine spends on following the grammar of one request.

`schemas.process` tries a grammar before the engine gets it, along a few ways. Along another one it may still be slow: a
grammar that can match a text in many ways gets slower with each token, in the process that generates for every request.
So what each step takes beyond a common amount is added up, and a request that has used its allowance ends, with
`SLOW_GRAMMAR` as its stop reason.

Internals of vLLM that are relied on: its xgrammar backend makes grammars by the name `XgrammarGrammar` in its module;
a request whose grammar accepts no token ends with an error, which `submit` translates; the stop reason of an output
reaches the replica as it is.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from vllm.v1.engine import EngineCoreOutputs, FinishReason
from vllm.v1.structured_output import backend_xgrammar
from vllm.v1.structured_output.backend_xgrammar import XgrammarGrammar

from deployments.replica.slow_grammar import SLOW_GRAMMAR

COMMON_STEP_S = 0.005
"""What any step may take of CPU time. With a vocabulary of 150,000 tokens, common steps take 0.01 to 1 ms, and those of
long bounded strings 4 ms."""
ALLOWANCE_S = 0.5

_LOGGERS = ("vllm.v1.core.sched.scheduler", "vllm.v1.structured_output.backend_xgrammar")
_SAYS_TOKENS = ("Unexpected: grammar rejected tokens", "Failed to advance FSM")


class TimedGrammar(XgrammarGrammar):  # type: ignore[misc]  # vLLM is not typed here.
    """A grammar that accepts nothing more once it has taken too much time."""

    slow: ClassVar[set[str]] = set()
    """The requests, by id, that may not go on and whose end has not been noted yet."""
    _left_s = ALLOWANCE_S

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Accept tokens of the request; return False if it may not go on."""
        if self._left_s <= 0:
            self.slow.add(request_id)
            return False
        with self._timed():
            return bool(super().accept_tokens(request_id, tokens))

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """Return the first of these tokens, as many as the grammar would accept."""
        if self._left_s <= 0:
            return []
        with self._timed():
            accepted: list[int] = super().validate_tokens(tokens)
            return accepted

    def fill_bitmask(self, bitmask: Any, idx: int) -> None:
        """Mark the tokens that may come next."""
        if self._left_s > 0:
            with self._timed():
                super().fill_bitmask(bitmask, idx)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.thread_time()
        yield
        taken_s = time.thread_time() - started
        if taken_s > COMMON_STEP_S:
            self._left_s -= taken_s - COMMON_STEP_S


def use_timed_grammars() -> None:
    """Make vLLM's backend in this process use `TimedGrammar`, and keep the tokens of those that end out of its log."""
    backend: Any = backend_xgrammar
    backend.XgrammarGrammar = TimedGrammar
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_says_no_tokens)


def mark_slow(made: Iterable[EngineCoreOutputs]) -> None:
    """Set the stop reason of requests that end in these outputs because their grammar took too much time."""
    if not TimedGrammar.slow:
        return
    for outputs in made:
        for output in outputs.outputs:
            if output.finish_reason is not None and output.request_id in TimedGrammar.slow:
                TimedGrammar.slow.discard(output.request_id)
                if output.finish_reason == FinishReason.ERROR:
                    output.stop_reason = SLOW_GRAMMAR


def _says_no_tokens(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_SAYS_TOKENS)
