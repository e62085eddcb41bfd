"""vLLM's scheduler for an engine that accounts share: which requests wait or run, and how much of prompts a step reads.

- Requests wait by account (`shares`). If all places or the KV cache are taken, an account that has more than another is
  preempted for a waiting request of the other: vLLM reads the preempted prompt again later, mostly from the cache. A
  single account has the whole engine.
- The prompts of accounts that were served little lately are read in steps of their own.
- A step reads about a tenth of a second's worth of prompts, since new requests wait for it. A prompt that needs more
  than one step lets new requests in at every other step.

vLLM's scheduler interface is not stable; a test runs this against the real engine.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from deployments.replica.processes import quiet_libraries
from deployments.replica.scheduling.shares import RECENT_S, FairQueue, Payer, Shares, in_turn, is_background
from deployments.replica.scheduling.step_times import ReadingPace


class Fair:
    """A mixin that makes a scheduler of vLLM fair; it must come first in the list of bases."""

    recent_s = RECENT_S
    running: list[Request]
    requests: dict[str, Request]
    max_num_active_reqs: int
    max_num_scheduled_tokens: int
    num_spec_tokens: int
    block_size: int
    kv_cache_manager: Any
    kv_cache_config: Any
    scheduler_config: Any
    lora_config: Any
    finished_recving_kv_req_ids: set[str]
    vllms_step: Callable[[], SchedulerOutput]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        quiet_libraries()  # The scheduler is the first of our code in the engine's own process.
        super().__init__(*args, **kwargs)
        self.waiting, self.kv_holding_waiting = FairQueue(), FairQueue()
        self.shares = Shares(self.recent_s)
        self.ready: list[Request] = []  # The waiting interactive requests that could run, in any order.
        self._pace = ReadingPace(self.max_num_scheduled_tokens)
        self._planned_at = 0.0
        self._was_in_vain = False
        self._let_in = False

    def add_request(self, request: Request) -> None:
        """Add a request."""
        self.shares.join(request)
        super().add_request(request)  # type: ignore[misc]

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Return the next step."""
        self.vllms_step = partial(super().schedule, *args, **kwargs)  # type: ignore[misc]
        now = time.monotonic()
        self.shares.weigh(now)
        waiting = chain(self.waiting.interactive(), self.kv_holding_waiting.interactive())
        self.ready = list(filter(self._is_ready, waiting))
        preempted = self._make_room(now) if len(self.shares.active) > 1 else []
        step = self.plan(now)
        for request in preempted:  # Only now: it must not continue in the step that preempts it.
            self.waiting.add_request(request)
        self._charge(step)
        return step

    def plan(self, now: float) -> SchedulerOutput:
        """Return a step of `running` and `ready` requests; `now` is the time in seconds."""
        reading = list(filter(is_reading, self.running))
        if not (reading or self.ready or self.lora_config):  # As most steps are.
            return self.vllms_step()
        chosen, num_admitted = self._choose(reading)
        if self.lora_config:
            chosen = _with_adapters(chosen, self.lora_config.max_loras)
        ids, late = ({request.request_id for request in requests} for requests in (chosen, reading))
        left_out = [request for request in self.running if request.request_id not in ids]
        decoding = [request for request in chosen if request.request_id not in late]
        num_decoded = len(decoding) * (1 + self.num_spec_tokens)
        max_running, max_tokens = self.max_num_active_reqs, self.max_num_scheduled_tokens
        # Prompts come last: they may take all the remaining tokens of a step.
        self.running = decoding + sorted((request for request in reading if request.request_id in ids), key=in_turn)
        self.max_num_active_reqs = min(max_running - len(left_out), len(chosen) + num_admitted)
        if self.scheduler_config.enable_chunked_prefill and self.shares.active:  # Else prompts must fit into a step.
            self.max_num_scheduled_tokens = min(max_tokens, num_decoded + self._pace.tokens)
        try:
            step = self.vllms_step()
        finally:
            self.max_num_active_reqs, self.max_num_scheduled_tokens = max_running, max_tokens
            self.running.extend(left_out)
        self._was_in_vain = bool(left_out) and not step.total_num_scheduled_tokens
        self._pace.note(step.total_num_scheduled_tokens - num_decoded, now - self._planned_at)
        self._planned_at = now
        return step

    def _choose(self, reading: list[Request]) -> tuple[list[Request], int]:
        """Return the running requests of the next step, and how many waiting requests may start in it."""
        if self._was_in_vain:
            return self.running, self.max_num_active_reqs
        reading = [request for request in reading if not is_background(request)]
        has_room = len(self.running) < self.max_num_active_reqs
        light = [request for request in reading if request.payer.is_light]
        num_light = sum(request.payer.is_light for request in self.ready) if has_room else 0
        if light or num_light:
            return light, num_light
        self._let_in = bool(self.ready and reading and has_room) and not self._let_in
        if self._let_in:
            return [request for request in self.running if not is_reading(request)], len(self.ready)
        return self.running, self.max_num_active_reqs

    def _is_ready(self, request: Request) -> bool:
        """Return whether a waiting request could run, by vLLM's rules."""
        if request.status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
            guided = request.structured_output_request
            return guided is not None and guided.grammar is not None
        if request.status == RequestStatus.WAITING_FOR_REMOTE_KVS:
            return request.request_id in self.finished_recving_kv_req_ids
        return request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self.shares.leave(request)
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]

    def _charge(self, step: SchedulerOutput) -> None:
        for request_id, num_tokens in step.num_scheduled_tokens.items():
            request = self.requests[request_id]
            if not is_background(request):
                self.shares.charge(request.payer, num_tokens)

    def _make_room(self, now: float) -> list[Request]:
        """Preempt requests of accounts that have more than waiting ones; return the preempted requests."""
        places = self.max_num_active_reqs - len(self.running)
        # Each running request may need one more block in this step.
        blocks = self.kv_cache_manager.block_pool.get_num_free_blocks() - len(self.running) * self._num_groups
        if len(self.ready) <= places and sum(map(self._blocks_of, self.ready)) <= blocks:
            return []
        held = Held(self.running, self._blocks_of)
        preempted: list[Request] = []

        def preempt(victim: Request | None) -> bool:
            nonlocal places, blocks
            if victim is None:
                return False
            held.drop(victim)
            self.running.remove(victim)
            self._preempt_request(victim, now)  # type: ignore[attr-defined]
            self.waiting.remove_request(victim)
            preempted.append(victim)
            places, blocks = places + 1, blocks + self._blocks_of(victim)
            return True

        while blocks < 0 and preempt(held.latest_of_most()):  # vLLM would preempt the latest request.
            continue
        full_for: set[Payer] = set()
        for request in sorted(self.ready, key=in_turn):
            payer: Payer = request.payer
            needed = self._blocks_of(request)
            while payer not in full_for and (places < 1 or blocks < needed):
                if not preempt(held.victim_for(request, by_places=places < 1)):
                    full_for.add(payer)
            if payer not in full_for:
                places, blocks = places - 1, blocks - needed
                held.add(request)
        return preempted

    @property
    def _num_groups(self) -> int:
        """The number of groups of layers with their own KV blocks; 0 for a model without a KV cache."""
        return len(self.kv_cache_config.kv_cache_groups)

    def _blocks_of(self, request: Request) -> int:
        return (int(request.num_tokens) // self.block_size + 1) * self._num_groups


class FairScheduler(Fair, Scheduler):  # type: ignore[misc]  # vLLM is not typed here.
    """vLLM's scheduler, shared by accounts, for an engine that plans a step after the previous one."""


class AsyncFairScheduler(Fair, AsyncScheduler):  # type: ignore[misc]
    """The same for an engine that plans a step while the previous one runs."""


def is_reading(request: Request) -> bool:
    """Return whether the engine still reads a request's prompt, or output from before a preemption."""
    return bool(request.num_computed_tokens < max(request.num_prompt_tokens, request.num_tokens - 1))


def _with_adapters(requests: list[Request], most: int) -> list[Request]:
    """Return the requests with the first `most` different adapters, and those without an adapter.

    Others wait a step: vLLM only checks the adapters of a step when it admits a request.
    """
    known: set[int] = set()
    kept = []
    for request in requests:
        adapter = request.lora_request.lora_int_id if request.lora_request else 0
        if adapter and adapter not in known:
            if len(known) == most:
                continue
            known.add(adapter)
        kept.append(request)
    return kept


class Held:
    """The running requests of each account, with their places and blocks of memory."""

    def __init__(self, running: Iterable[Request], blocks_of: Callable[[Request], int]) -> None:
        self._blocks_of = blocks_of
        self._requests: defaultdict[Payer, list[Request]] = defaultdict(list)
        self._blocks: Counter[Payer] = Counter()
        for request in running:
            if not is_background(request):
                self.add(request)

    def add(self, request: Request) -> None:
        """Add a request that runs or is about to run."""
        self._requests[request.payer].append(request)
        self._blocks[request.payer] += self._blocks_of(request)

    def drop(self, request: Request) -> None:
        """Remove a preempted request."""
        self._requests[request.payer].remove(request)
        self._blocks[request.payer] -= self._blocks_of(request)

    def latest_of_most(self) -> Request | None:
        """Return the latest request of the account with the most memory for its share; None for a single account."""
        return self._latest(self._most(by_places=False)) if sum(map(bool, self._requests.values())) > 1 else None

    def victim_for(self, waiting: Request, *, by_places: bool) -> Request | None:
        """Return a running request that should give its place, or memory, to a waiting request; None if there is none.

        It is the latest request of the account that has most for its share. This account must keep at least as much as
        the other gets, and must have been served at least as much.
        """
        payer: Payer = waiting.payer
        most = self._most(by_places=by_places)
        if most is None or most is payer or most.served < payer.served:
            return None
        latest = self._latest(most)
        if latest is None:
            return None
        theirs, more = (1, 1) if by_places else (self._blocks_of(latest), self._blocks_of(waiting))
        left, wanted = self._size(most, by_places) - theirs, self._size(payer, by_places) + more
        return latest if left / most.share >= wanted / payer.share else None

    def _size(self, payer: Payer, by_places: bool) -> int:
        return len(self._requests.get(payer, ())) if by_places else self._blocks[payer]

    def _most(self, *, by_places: bool) -> Payer | None:
        return max(self._requests, key=lambda payer: self._size(payer, by_places) / payer.share, default=None)

    def _latest(self, payer: Payer | None) -> Request | None:
        if payer is None:
            return None
        running = (request for request in self._requests[payer] if request.status == RequestStatus.RUNNING)
        return max(running, default=None)
