"""vLLM's scheduler with a rule more: background requests never make an interactive one wait for its first token.

The requests of batches have a priority above 0. vLLM admits them later than others, but once they run, each of them
makes every step longer, and with it the time that a new prompt waits. Here a step that reads an interactive prompt
holds nothing else than interactive requests; steps beside interactive answers hold a few background requests; and when
nobody else has asked for a moment, the background has the whole engine. What is left out of a step keeps its place and
its cache and goes on in the next.

vLLM does not promise this interface to stay; a test runs it against the real engine.
"""

import time
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request, RequestStatus

from deployments.models.replica.grammar import ResumingScheduler

BESIDE_INTERACTIVE = 8
"""How many background requests share a step with interactive answers."""
_QUIET_S = 2.0
_FULL = 0.95
_READY = (RequestStatus.WAITING, RequestStatus.PREEMPTED)


class InteractiveFirst(ResumingScheduler):
    """vLLM's scheduler for an engine that waits for each step before it plans the next."""

    running: list[Request]
    max_num_running_reqs: int
    _interactive_at = 0.0
    _has_stood_still = False

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Return the next step."""
        now = time.monotonic()
        interactive = [request for request in self.running if request.priority <= 0]
        num_waiting = self._num_interactive_waiting()
        if interactive or num_waiting:
            self._interactive_at = now
        is_quiet = now - self._interactive_at > _QUIET_S
        if is_quiet or self._has_stood_still or self._is_full():
            self._has_stood_still = False
            return super().schedule(*args, **kwargs)
        is_reading = num_waiting or any(map(_is_reading, interactive))
        background = [request for request in self.running if request.priority > 0]
        num_shown = 0 if is_reading else BESIDE_INTERACTIVE
        shown, hidden = background[:num_shown], background[num_shown:]
        limit = self.max_num_running_reqs
        # Interactive requests wait before all others, so that as many places as there are of them are theirs.
        wanted = len(interactive) + (num_waiting if is_reading else num_shown)
        self.running = interactive + shown
        self.max_num_running_reqs = min(limit - len(hidden), wanted)
        try:
            step = super().schedule(*args, **kwargs)
        finally:
            self.max_num_running_reqs = limit
            self.running.extend(hidden)
        self._has_stood_still = step.total_num_scheduled_tokens == 0
        return step

    def _num_interactive_waiting(self) -> int:
        num = 0
        for request in self.waiting:  # In order of priority.
            if request.priority > 0:
                break
            num += request.status in _READY
        return num

    def _is_full(self) -> bool:
        """Say whether there is no place or no cache for more: then what runs must come to its end, or be preempted."""
        return len(self.running) >= self.max_num_running_reqs or bool(self.kv_cache_manager.usage > _FULL)


class AsyncInteractiveFirst(InteractiveFirst, AsyncScheduler):  # type: ignore[misc]
    """The same for an engine that plans a step while the one before it runs."""


def _is_reading(request: Request) -> bool:
    return bool(request.num_computed_tokens < request.num_prompt_tokens)
