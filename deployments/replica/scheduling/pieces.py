"""Sends the tokens of batch lines, and of other whole answers in the background, in pieces of several tokens.

No client reads these before they end, but each message costs encoding, sending, decoding and rendering, on processors
that interactive requests need, and in threads that compete with the engine's steps for Python's lock.

Some tokens are still sent at once: the first, for a correct TTFT; every token of an answer with a stop text, which is
searched for outside the engine; every token with log probabilities; and every token of a stream, as its client reads
along. A step without output sends nothing.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.metrics.stats import SchedulerStats
from vllm.v1.request import Request

from deployments.replica.resume.grammar import ResumingScheduler
from deployments.replica.signals import is_streamed

PIECE_TOKENS: Final = 16
"""Small enough that the stall watch sees progress."""

_REPORT_S = 0.1
_ALWAYS = {"request_id", "new_token_ids", "trace_headers", "num_nans_in_logits"}
_MORE = tuple(field for field in EngineCoreOutput.__struct_fields__ if field not in _ALWAYS)


class PiecewiseScheduler(ResumingScheduler):
    """vLLM's scheduler, which sends batch output in pieces, and statistics ten times a second."""

    _reported_at = 0.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pieces = Pieces()

    def update_from_output(self, *args: Any, **kwargs: Any) -> dict[int, EngineCoreOutputs]:
        """Return the output of a step that is sent now, by client."""
        by_client: dict[int, EngineCoreOutputs] = super().update_from_output(*args, **kwargs)
        for outputs in by_client.values():
            outputs.outputs = self._pieces.ready(outputs.outputs, self.requests)
        return {client: outputs for client, outputs in by_client.items() if _has_content(outputs)}

    def finish_requests(self, *args: Any, **kwargs: Any) -> list[Request]:
        """Abort requests; return those that had not ended."""
        ended: list[Request] = super().finish_requests(*args, **kwargs)
        self._pieces.forget(ended)
        return ended

    def make_stats(self, *args: Any, **kwargs: Any) -> SchedulerStats | None:
        """Return statistics since the last report, or None while they accumulate.

        Statistics of a single step, and an idle engine, are reported at once.
        """
        now = time.monotonic()
        is_busy = bool(self.running or self.waiting or self.kv_holding_waiting)
        has_more = any(value is not None for value in (*args, *kwargs.values()))
        if is_busy and not has_more and now - self._reported_at < _REPORT_S:
            return None
        self._reported_at = now
        stats: SchedulerStats | None = super().make_stats(*args, **kwargs)
        return stats


class Pieces:
    """Tokens of batch requests that have not been sent yet."""

    def __init__(self) -> None:
        self._held: dict[str, list[int]] = {}

    def ready(self, outputs: Iterable[EngineCoreOutput], running: Mapping[str, Request]) -> list[EngineCoreOutput]:
        """Return the outputs of a step that are sent now; each starts with the request's held tokens.

        `running` has the requests that have not ended in the step, by id.
        """
        return [output for output in outputs if not self._holds(output, running.get(output.request_id))]

    def forget(self, requests: Iterable[Request]) -> None:
        """Drop the held tokens of aborted requests."""
        for request in requests:
            self._held.pop(request.request_id, None)

    def _holds(self, output: EngineCoreOutput, request: Request | None) -> bool:
        if output.request_id in self._held:
            output.new_token_ids = self._held.pop(output.request_id) + output.new_token_ids
        if _may_wait(request) and _has_only_tokens(output) and len(output.new_token_ids) < PIECE_TOKENS:
            self._held[output.request_id] = output.new_token_ids
            return True
        return False


def _has_content(outputs: EngineCoreOutputs) -> bool:
    return bool(outputs.outputs or outputs.finished_requests or outputs.scheduler_stats)


def _may_wait(request: Request | None) -> bool:
    if request is None or request.priority <= 0:
        return False
    params = request.sampling_params
    return params is not None and not params.stop and not is_streamed(params)


def _has_only_tokens(output: EngineCoreOutput) -> bool:
    return all(getattr(output, name) is None for name in _MORE)
