"""Bounds the time that the engine spends on following the grammar of one request.

`schemas.process` tries a grammar along a few paths before the engine gets it. Along another path it may still be slow:
a grammar that can match a text in many ways gets slower with each token, in the process that generates for all
requests. So the time of each step beyond a common amount adds up, and a request that has used its allowance ends, with
`SLOW_GRAMMAR` as its stop reason.

Relies on internals of vLLM: its xgrammar backend creates grammars by the name `XgrammarGrammar` in its module; a
request whose grammar accepts no token ends with an error, which `submit` translates; stop reasons reach the replica
unchanged.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from vllm.v1.engine import EngineCoreOutputs, FinishReason
from vllm.v1.structured_output import backend_xgrammar
from vllm.v1.structured_output.backend_xgrammar import XgrammarGrammar

from deployments.replica.signals import SLOW_GRAMMAR

COMMON_STEP_S = 0.005
"""CPU time that any step may take. With 150,000 tokens, common steps take 0.01 to 1 ms, long bounded strings 4 ms."""
ALLOWANCE_S = 0.5

_LOGGERS = ("vllm.v1.core.sched.scheduler", "vllm.v1.structured_output.backend_xgrammar")
_WITH_TOKENS = ("Unexpected: grammar rejected tokens", "Failed to advance FSM")


class TimedGrammar(XgrammarGrammar):  # type: ignore[misc]  # vLLM is not typed here.
    """A grammar that accepts no more tokens once it has used its time."""

    slow: ClassVar[set[str]] = set()
    """The ids of requests that ran out of time, until their end is marked."""
    _left_s = ALLOWANCE_S

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Accept tokens of the request; return False if it must end."""
        if self._left_s <= 0:
            self.slow.add(request_id)
            return False
        with self._timed():
            return bool(super().accept_tokens(request_id, tokens))

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """Return the leading tokens that the grammar would accept."""
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
    """Make vLLM's backend in this process use `TimedGrammar`, and keep rejected tokens out of its log."""
    backend: Any = backend_xgrammar
    backend.XgrammarGrammar = TimedGrammar
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_has_no_tokens)


def mark_slow(steps: Iterable[EngineCoreOutputs]) -> None:
    """Set the stop reason of requests in these outputs whose grammar took too much time."""
    if not TimedGrammar.slow:
        return
    for outputs in steps:
        for output in outputs.outputs:
            if output.finish_reason is not None and output.request_id in TimedGrammar.slow:
                TimedGrammar.slow.discard(output.request_id)
                if output.finish_reason == FinishReason.ERROR:
                    output.stop_reason = SLOW_GRAMMAR


def _has_no_tokens(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_WITH_TOKENS)
