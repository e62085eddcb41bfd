"""vLLM's scheduler with one more rule: batch requests must not delay the first token of interactive requests.

Batch requests and those of the service tier flex ("the background") have a priority above 0. vLLM admits them last, but
once they run, each of them makes every step longer, and so the time that a new prompt waits. Here the content of a step
depends on interactive requests:

- A prompt is being read, or a request is on its way: the step holds interactive requests only.
- Answers are being generated: the step also holds as much background as makes it 10 % longer, at least one token.
- None runs, but one came lately: the step holds background that takes no longer than a step of the second kind.
- None came for `QUIET_S`: the background has the whole engine.

A request that is left out of a step keeps its place and its KV cache, and continues in a later step. `step_times`
learns how long steps take. `fair` shares steps among interactive requests.

vLLM's scheduler interface is not stable; a test runs this against the real engine.
"""

import math
from collections import deque
from collections.abc import Set
from typing import Any, NamedTuple

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.request import Request

from deployments.replica.scheduling.fair import Fair, is_reading
from deployments.replica.scheduling.grammar_time import mark_slow, use_timed_grammars
from deployments.replica.scheduling.open_reasoning import OpenReasoning
from deployments.replica.scheduling.pieces import PiecewiseScheduler
from deployments.replica.scheduling.preparing import QUIET_S, Notice
from deployments.replica.scheduling.step_times import Kind, StepTimes

_STEPS_APART = 3
"""Minimum steps between two admissions. Without it, many requests end at once, which delays new requests."""
_ALIKE = 3  # The number of equal steps in a row after which the time of one is known.
_RAMP_STEPS = 24  # Where there is room for many requests, the steps until all are admitted.
_FULL = 0.95


class _Step(NamedTuple):
    """A step during or between answers: its number of tokens, and the ids of its requests."""

    kind: Kind
    num_tokens: int
    ran: Set[str]


class InteractiveFirst(Fair, PiecewiseScheduler):
    """vLLM's scheduler with this rule, for an engine that plans a step after the previous one."""

    quiet_s = QUIET_S
    _interactive_at = 0.0
    _has_stood_still = False
    _beside: Set[str] = frozenset()  # Background requests in the last step that held some of them.
    _num_recent = 0  # They are among this many background requests at the start of `running`.
    _num_ran = 0
    _steps_until_next = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        use_timed_grammars()
        super().__init__(*args, **kwargs)
        self._notice = Notice.find()
        self._times = StepTimes()
        self._open_reasoning = OpenReasoning.of(self.vllm_config.reasoning_config)
        self._last_steps: deque[_Step] = deque(maxlen=_ALIKE)
        self._last_at = 0.0
        self._left_out: list[Request] = []  # The end of `running`, unless vLLM has changed the list.
        self._ran: list[Request] = []  # `running` as it was when the last step was planned; `_num_ran` is its length.

    def plan(self, now: float) -> SchedulerOutput:
        """Return the next step; `now` is the time in seconds."""
        self._note_step(now)
        self._last_at = now
        return self._plan(now)

    def get_grammar_bitmask(self, step: SchedulerOutput) -> GrammarOutput | None:
        """Return the tokens that forms allow in a step; None if no request has a form."""
        output: GrammarOutput | None = super().get_grammar_bitmask(step)
        if output is not None and self._open_reasoning is not None:
            self._open_reasoning.forbid_ends(output, self.requests, step.scheduled_spec_decode_tokens)
        return output

    def update_from_output(self, *args: Any, **kwargs: Any) -> dict[int, EngineCoreOutputs]:
        """Return the output of a step that is sent now, by client."""
        by_client = super().update_from_output(*args, **kwargs)
        mark_slow(by_client.values())
        return by_client

    def _note_step(self, now: float) -> None:
        """Learn how long a step during or between interactive answers took.

        The time since the last planning is that of the last step or, if steps are planned ahead, of an earlier one; so
        the last steps must be equal. And a request of the first must still run, as the engine may have been idle.
        """
        if len(self._last_steps) < _ALIKE or len({(step.kind, step.num_tokens) for step in self._last_steps}) > 1:
            return
        last = self._last_steps[-1]
        if any(request.request_id in self._last_steps[0].ran for request in self.running):
            self._times.note(last.kind, last.num_tokens, now - self._last_at)

    def _plan(self, now: float) -> SchedulerOutput:
        interactive, held, left_out = self._parted()
        num_waiting = len(self.ready)
        is_on_its_way = now < self._notice.until
        if interactive or num_waiting or is_on_its_way:
            self._interactive_at = now
        is_quiet = now - self._interactive_at > self.quiet_s
        if is_quiet or self._has_stood_still or self._is_full():
            self._has_stood_still = False
            self._beside, self._num_recent, self._left_out = frozenset(), 0, []
            self._last_steps.clear()
            return super().plan(self._last_at)
        # Interactive requests are first in the queue, so this number of admissions admits only them.
        if num_waiting or is_on_its_way or any(map(is_reading, interactive)):
            self._last_steps.clear()
            most = self.max_num_scheduled_tokens
            step = self._schedule_among(interactive, held + left_out, num_waiting, most)
        else:
            step = self._schedule_beside(interactive, held, left_out)
        # An empty step helps only for a request on its way, which is short. Waiting for memory that the background
        # holds would never end.
        is_in_vain = num_waiting > 0 or not is_on_its_way
        self._has_stood_still = step.total_num_scheduled_tokens == 0 and is_in_vain
        return step

    def _parted(self) -> tuple[list[Request], list[Request], list[Request]]:
        """Return running requests: interactive ones, background in the last step, background left out of it.

        Hundreds may be left out of many steps. They are neither checked nor copied until vLLM changes the list.
        """
        num = len(self.running) - len(self._left_out)
        if (self.running is not self._ran or len(self.running) != self._num_ran) and (
            num < 0 or self.running[num:] != self._left_out
        ):
            self._left_out, num = [], len(self.running)
        held = self.running[:num]
        interactive = [request for request in held if request.priority <= 0]
        return interactive, [request for request in held if request.priority > 0], self._left_out

    def _schedule_beside(
        self, interactive: list[Request], held: list[Request], left_out: list[Request]
    ) -> SchedulerOutput:
        """Return a step of interactive answers and background: that of the last such step, and more if it is time."""
        kind = Kind.BESIDE if interactive else Kind.BETWEEN
        num_theirs = len(interactive) * (1 + self.num_spec_tokens)
        room = self._times.room(kind, num_theirs)
        num_rested = max(0, self._num_recent - len(held))
        recent = held + left_out[:num_rested]
        beside = [request for request in recent if request.request_id in self._beside][:room]
        self._steps_until_next -= 1
        is_time = self._steps_until_next <= 0 or not (beside or interactive)
        num_new = min(room - len(beside), math.ceil(room * _STEPS_APART / _RAMP_STEPS)) if is_time else 0
        num_admitted = 0
        if num_new or len(beside) < len(held) or num_rested:
            chosen = {request.request_id for request in beside}
            others = [request for request in recent if request.request_id not in chosen] + left_out[num_rested:]
            beside, left_out = beside + others[:num_new], others[num_new:]
            num_admitted = max(0, num_new - len(others))
        step = self._schedule_among(interactive + beside, left_out, num_admitted, num_theirs + room)
        now = step.num_scheduled_tokens.keys() - {request.request_id for request in interactive}
        if not now <= self._beside:
            self._steps_until_next = _STEPS_APART
        self._beside, self._num_recent = now, len(self.running) - len(self._left_out) - len(interactive)
        self._last_steps.append(_Step(kind, step.total_num_scheduled_tokens, step.num_scheduled_tokens.keys()))
        return step

    def _schedule_among(
        self, chosen: list[Request], left_out: list[Request], num_admitted: int, num_tokens: int
    ) -> SchedulerOutput:
        """Return a step of at most `num_tokens`, with the chosen running requests and `num_admitted` waiting ones."""
        max_running, max_tokens = self.max_num_active_reqs, self.max_num_scheduled_tokens
        self.running = chosen.copy()
        self.max_num_active_reqs = min(max_running - len(left_out), len(chosen) + num_admitted)
        if self.scheduler_config.enable_chunked_prefill:  # Else prompts must fit into a step.
            self.max_num_scheduled_tokens = min(max_tokens, num_tokens)
        try:
            return super().plan(self._last_at)
        finally:
            self.max_num_active_reqs, self.max_num_scheduled_tokens = max_running, max_tokens
            self.running.extend(left_out)
            self._left_out, self._ran, self._num_ran = left_out, self.running, len(self.running)

    def _is_full(self) -> bool:
        return len(self.running) >= self.max_num_active_reqs or bool(self.kv_cache_manager.usage > _FULL)


class AsyncInteractiveFirst(InteractiveFirst, AsyncScheduler):  # type: ignore[misc]
    """The same for an engine that plans a step while the previous one runs."""
