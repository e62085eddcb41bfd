"""What a batch's lines write leaves the engine in pieces of several tokens.

Nobody reads a line before its end. But a token that leaves by itself is encoded, sent, decoded and rendered by itself,
on the processors that interactive requests need, and by threads that take the engine's steps their turn in Python.

The first token leaves at once, so that times to first token stay true. So does every token of a line with a stop text,
which is looked for where tokens become text, and every one with probabilities. A step of which nothing is to be said
sends nothing.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.metrics.stats import SchedulerStats
from vllm.v1.request import Request

from deployments.replica.resume.grammar import ResumingScheduler

PIECE_TOKENS: Final = 16
"""So few that an engine with long answers is seen to move."""

_TELL_S = 0.1
_ALWAYS = {"request_id", "new_token_ids", "trace_headers", "num_nans_in_logits"}
_MORE = tuple(field for field in EngineCoreOutput.__struct_fields__ if field not in _ALWAYS)


class PiecewiseScheduler(ResumingScheduler):
    """vLLM's scheduler, from which the background's answers come in pieces, and statistics ten times a second."""

    _told_at = 0.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pieces = Pieces()

    def update_from_output(self, *args: Any, **kwargs: Any) -> dict[int, EngineCoreOutputs]:
        """Return what a step has made, by client, as far as it leaves now."""
        made: dict[int, EngineCoreOutputs] = super().update_from_output(*args, **kwargs)
        for outputs in made.values():
            outputs.outputs = self._pieces.ready(outputs.outputs, self.requests)
        return {client: outputs for client, outputs in made.items() if _says_something(outputs)}

    def finish_requests(self, *args: Any, **kwargs: Any) -> list[Request]:
        """End requests from outside; return those that had not ended."""
        ended: list[Request] = super().finish_requests(*args, **kwargs)
        self._pieces.forget(ended)
        return ended

    def make_stats(self, *args: Any, **kwargs: Any) -> SchedulerStats | None:
        """Return what has happened since the last time, which adds up while this is None.

        What a step alone can tell, and that nothing is left to do, is told at once.
        """
        now = time.monotonic()
        is_busy = bool(self.running or self.waiting or self.skipped_waiting)
        has_more = any(told is not None for told in (*args, *kwargs.values()))
        if is_busy and not has_more and now - self._told_at < _TELL_S:
            return None
        self._told_at = now
        stats: SchedulerStats | None = super().make_stats(*args, **kwargs)
        return stats


class Pieces:
    """Tokens of background requests that have not left the engine yet."""

    def __init__(self) -> None:
        self._held: dict[str, list[int]] = {}

    def ready(self, outputs: Iterable[EngineCoreOutput], running: Mapping[str, Request]) -> list[EngineCoreOutput]:
        """Return the outputs of a step that leave now; each begins with what was held of its request.

        `running` has the requests that have not ended in the step, by id.
        """
        return [output for output in outputs if not self._holds(output, running.get(output.request_id))]

    def forget(self, requests: Iterable[Request]) -> None:
        """Drop what was held of requests that were taken back."""
        for request in requests:
            self._held.pop(request.request_id, None)

    def _holds(self, output: EngineCoreOutput, request: Request | None) -> bool:
        if output.request_id in self._held:
            output.new_token_ids = self._held.pop(output.request_id) + output.new_token_ids
        if _may_wait(request) and _has_only_tokens(output) and len(output.new_token_ids) < PIECE_TOKENS:
            self._held[output.request_id] = output.new_token_ids
            return True
        return False


def _says_something(outputs: EngineCoreOutputs) -> bool:
    return bool(outputs.outputs or outputs.finished_requests or outputs.scheduler_stats)


def _may_wait(request: Request | None) -> bool:
    if request is None or request.priority <= 0:
        return False
    return request.sampling_params is not None and not request.sampling_params.stop


def _has_only_tokens(output: EngineCoreOutput) -> bool:
    return all(getattr(output, name) is None for name in _MORE)
