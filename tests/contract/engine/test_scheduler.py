"""The scheduler beside vLLM's real engine: which requests a step holds, seen from the tokens that each request gets."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from tests.contract.engine.asked import Asked
from tests.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

NUM_BACKGROUND = 24
IN_FLIGHT = 2
"""Steps that are planned or run when an interactive request comes; they hold what they held."""


@pytest.fixture
def crowd(real_engine):
    """Return a function that runs a test beside background requests that are all being answered."""

    def run(test, max_tokens=900):
        async def with_background():
            background = [
                Asked(real_engine.client, 8 + n, max_tokens, 10, f"background-{n}") for n in range(NUM_BACKGROUND)
            ]
            await asyncio.gather(*(one.first.wait() for one in background))
            try:
                await test(background)
            finally:
                for one in background:
                    one.task.cancel()
                await asyncio.gather(*(one.task for one in background), return_exceptions=True)

        real_engine.run(with_background())

    return run


def count(background):
    return [one.num_tokens for one in background]


def test_steps_that_read_an_interactive_prompt_hold_nothing_else(real_engine, crowd):
    async def ask(background):
        before = count(background)
        interactive = Asked(real_engine.client, 900, 4, 0, "interactive")  # Eight steps of 128 tokens.
        await interactive.first.wait()
        gained = [now - then for now, then in zip(count(background), before, strict=True)]
        assert max(gained) <= IN_FLIGHT + 1
        await interactive.task

    crowd(ask)


def test_a_few_go_on_beside_an_interactive_answer_and_all_of_them_after_it(real_engine, crowd):
    async def ask(background):
        interactive = Asked(real_engine.client, 10, 120, 0, "interactive")
        await interactive.first.wait()
        before = count(background)
        await interactive.task
        gained = [now - then for now, then in zip(count(background), before, strict=True)]
        assert 1 <= sum(one > IN_FLIGHT + 1 for one in gained) < NUM_BACKGROUND
        assert 10 < max(gained) <= 120 + IN_FLIGHT + 1  # A line gains one token a step, as the answer does.
        after = count(background)
        await eventually(
            lambda: all(
                one.num_tokens > then + 10 or one.task.done() for one, then in zip(background, after, strict=True)
            )
        )

    crowd(ask)


def test_the_background_has_the_whole_engine_when_nobody_else_has_asked_for_a_while(real_engine):
    from tests.contract.engine.soon_quiet import SoonQuiet

    async def ask():
        await Asked(real_engine.client, 10, 4, 0, "interactive").task
        await asyncio.sleep(SoonQuiet.quiet_s + 0.1)
        background = [Asked(real_engine.client, 8 + n, 200, 10, f"background-{n}") for n in range(NUM_BACKGROUND)]
        await asyncio.gather(*(one.first.wait() for one in background))
        assert max(count(background)) < 50  # Their prompts take four steps, and a hundred beside others.
        await asyncio.gather(*(one.task for one in background))

    real_engine.run(ask())


def test_steps_while_an_interactive_request_is_on_its_way_hold_no_background(real_engine, crowd):
    async def ask(background):
        real_engine.notice.until = time.monotonic() + 1.0
        await asyncio.sleep(0.5)  # The steps that were planned have ended.
        before = count(background)
        await asyncio.sleep(0.3)
        assert count(background) == before
        await eventually(lambda: all(now > then for now, then in zip(count(background), before, strict=True)))

    crowd(ask)


def test_interactive_answers_go_on_while_another_request_is_on_its_way(real_engine, crowd):
    async def ask(background):
        interactive = Asked(real_engine.client, 10, 800, 0, "interactive")
        await interactive.first.wait()
        real_engine.notice.until = time.monotonic() + 1.0
        await asyncio.sleep(0.5)
        before, num_before = count(background), interactive.num_tokens
        await asyncio.sleep(0.3)
        assert interactive.num_tokens > num_before + 5
        assert count(background) == before
        interactive.task.cancel()
        await asyncio.gather(interactive.task, return_exceptions=True)

    crowd(ask)


def test_requests_that_never_arrive_do_not_hold_up_those_that_wait_for_room(real_engine, crowd):
    async def ask(background):
        real_engine.notice.until = time.monotonic() + 600
        try:
            many = [Asked(real_engine.client, 20, 8, 0, f"interactive-{n}") for n in range(40)]
            await asyncio.gather(*(one.task for one in many))
        finally:
            real_engine.notice.until = 0.0

    crowd(ask)


def test_background_requests_that_come_beside_an_interactive_one_begin_one_after_another(real_engine):
    async def ask():
        interactive = Asked(real_engine.client, 10, 800, 0, "interactive")
        await interactive.first.wait()
        background = [Asked(real_engine.client, 8, 900, 10, f"background-{n}") for n in range(NUM_BACKGROUND)]
        await eventually(lambda: any(count(background)))
        num_before = interactive.num_tokens
        await eventually(lambda: interactive.num_tokens >= num_before + 6)
        assert sum(map(bool, count(background))) <= NUM_BACKGROUND // 2
        await eventually(lambda: interactive.num_tokens > 300)
        beside = list(filter(None, count(background)))
        assert len(set(beside)) >= min(2, len(beside)) >= 1  # Not all as far, and so they will not end together.
        for one in (interactive, *background):
            one.task.cancel()
        await asyncio.gather(*(one.task for one in (interactive, *background)), return_exceptions=True)

    real_engine.run(ask())


def test_a_background_prompt_is_read_in_small_pieces_beside_an_interactive_answer(real_engine):
    async def ask():
        interactive = Asked(real_engine.client, 10, 800, 0, "interactive")
        await interactive.first.wait()
        long = Asked(real_engine.client, 900, 4, 10, "background")  # Eight steps of 128 tokens for it alone.
        before = interactive.num_tokens
        await long.first.wait()
        assert interactive.num_tokens - before > 16
        interactive.task.cancel()
        await asyncio.gather(interactive.task, long.task, return_exceptions=True)

    real_engine.run(ask())


def test_a_guided_request_need_not_wait_for_a_place_beside_the_background(real_engine, crowd):
    async def ask(background):
        other = Asked(real_engine.client, 10, 800, 0, "interactive")  # So that the engine is never quiet.
        await other.first.wait()
        schema = {"type": "array", "items": {"type": "integer"}, "minItems": 20}
        guided = Asked(real_engine.client, 10, 20, 0, "guided", schema)
        await guided.first.wait()
        assert not other.task.done()
        await guided.task
        other.task.cancel()
        await asyncio.gather(other.task, return_exceptions=True)

    crowd(ask)


def test_background_requests_come_to_their_end_beside_interactive_ones(real_engine, crowd):
    async def ask(background):
        waves = 0
        while not all(one.task.done() for one in background):
            await Asked(real_engine.client, 20, 20, 0, f"interactive-{waves}").task
            waves += 1
        assert count(background) == [60] * NUM_BACKGROUND

    crowd(ask, max_tokens=60)


def test_more_interactive_requests_than_places_wait_for_those_that_run(real_engine, crowd):
    async def ask(background):
        many = [Asked(real_engine.client, 20, 8, 0, f"interactive-{n}") for n in range(40)]
        await asyncio.gather(*(one.task for one in many))
        assert [one.num_tokens for one in many] == [8] * 40

    crowd(ask)


def test_answers_of_the_background_leave_in_pieces_and_say_the_same(real_engine):
    async def ask():
        one_by_one = Asked(real_engine.client, 10, 40, 10, "line")
        await one_by_one.task
        line = Asked(real_engine.client, 10, 40, 10, "line", stop=None)
        await line.task
        assert line.pieces == [1, 16, 16, 7]
        assert one_by_one.pieces == [1] * 40
        assert line.text == one_by_one.text
        interactive = Asked(real_engine.client, 10, 40, 0, "line", stop=None)
        await interactive.task
        assert interactive.pieces == [1] * 40
        streamed = Asked(real_engine.client, 10, 40, 10, "line", stop=None, streamed=True)
        await streamed.task
        assert streamed.pieces == [1] * 40

    real_engine.run(ask())


def test_what_is_held_of_a_line_is_forgotten_when_it_is_taken_back():
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine import EngineCoreOutput, FinishReason
    from vllm.v1.request import Request

    from deployments.replica.scheduling.pieces import Pieces

    def step(*tokens, **more):
        return pieces.ready([EngineCoreOutput("line", list(tokens), **more)], {"line": line})

    pieces = Pieces()
    line = Request("line", [1, 2], SamplingParams(max_tokens=90), None, priority=10)
    assert step(5) == []
    pieces.forget([line])
    assert step(6) == []
    (last,) = step(7, finish_reason=FinishReason.STOP)
    assert last.new_token_ids == [6, 7]
    assert [output.new_token_ids for n in range(32) for output in step(n)] == [[*range(16)], [*range(16, 32)]]


def test_statistics_add_up_over_steps_and_are_told_when_nothing_is_left():
    from vllm.v1.metrics.stats import PrefixCacheStats

    from deployments.replica.scheduling.pieces import PiecewiseScheduler

    cache = PrefixCacheStats()

    def take():
        nonlocal cache
        taken, cache = cache, PrefixCacheStats()
        return taken

    scheduler = PiecewiseScheduler.__new__(PiecewiseScheduler)
    scheduler.running, scheduler.waiting, scheduler.kv_holding_waiting = [object()], [], []
    scheduler.deferred_waiting, scheduler._kv_fetch_counts = set(), {}
    scheduler.log_stats, scheduler.connector_prefix_cache_stats, scheduler.kv_metrics_collector = True, None, None
    scheduler.kv_cache_manager = SimpleNamespace(usage=0.5, make_prefix_cache_stats=take)
    told = []
    for _ in range(5):
        cache.queries += 2
        told.append(scheduler.make_stats(None, None))
    assert [one is not None for one in told] == [True, False, False, False, False]
    assert scheduler.make_stats({"a": "step's own"}).prefix_cache_stats.queries == 8
    cache.queries += 3
    scheduler.running.clear()
    last = scheduler.make_stats()
    assert (last.num_running_reqs, last.prefix_cache_stats.queries) == (0, 3)
