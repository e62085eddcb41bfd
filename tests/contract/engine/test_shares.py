"""How accounts share vLLM's real engine, seen from the tokens that each request gets."""

import asyncio
from types import SimpleNamespace

import pytest

from deployments.models.contract.engine import render_salt
from tests.contract.engine.asked import Asked
from tests.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

PLACES = 32
IN_FLIGHT = 2
"""Steps that are planned or run when a request comes; they hold what they held."""
LENGTH = 500
"""How many tokens a prompt has, twenty times as many were served to the others before it comes."""


def ask(real_engine, name, account, *, share=1.0, prompt_tokens=10, max_tokens=900):
    salt = render_salt(account, share, None)
    return Asked(real_engine.client, prompt_tokens, max_tokens, 0, name, salt=salt)


async def leave(requests):
    for one in requests:
        one.task.cancel()
    await asyncio.gather(*(one.task for one in requests), return_exceptions=True)


def count(requests):
    return sum(one.num_tokens for one in requests)


def test_a_request_beside_more_of_another_account_than_there_are_places_begins_at_once(real_engine):
    async def run():
        flood = [ask(real_engine, f"flood-{n}", "flooder") for n in range(3 * PLACES)]
        await eventually(lambda: count(flood) > 20 * LENGTH, timeout_s=120)
        one = ask(real_engine, "one", "rare", prompt_tokens=LENGTH, max_tokens=4)  # Four steps of 128 tokens.
        await one.task
        began, ended = one.stats.scheduled_ts, one.stats.first_token_ts
        assert began - one.stats.queued_ts < 3 * (ended - began)
        assert max(sum(began < at < ended for at in other.times) for other in flood) <= IN_FLIGHT
        await leave(flood)

    real_engine.run(run())


@pytest.mark.parametrize("share", [1.0, 3.0])
def test_accounts_that_want_all_of_it_get_what_their_shares_say(real_engine, share):
    async def run():
        many = [ask(real_engine, f"many-{n}", "many") for n in range(4 * PLACES)]
        await asyncio.gather(*(one.first.wait() for one in many[:PLACES]))
        few = [ask(real_engine, f"few-{n}", "few", share=share) for n in range(PLACES)]
        await few[0].first.wait()
        before = count(many), count(few)
        await eventually(lambda: count(few) - before[1] > 4000, timeout_s=120)
        of_many, of_few = count(many) - before[0], count(few) - before[1]
        assert of_few / of_many == pytest.approx(share, rel=0.15)
        await leave(many + few)

    real_engine.run(run())


def test_an_account_alone_has_every_place(real_engine):
    async def run():
        flood = [ask(real_engine, f"flood-{n}", "flooder", max_tokens=200) for n in range(2 * PLACES)]
        await asyncio.gather(*(one.first.wait() for one in flood[:PLACES]))
        assert all(one.num_tokens for one in flood[:PLACES])
        await asyncio.gather(*(one.task for one in flood))
        assert count(flood) == 2 * PLACES * 200

    real_engine.run(run())


def test_an_answer_that_gave_its_place_up_says_the_same(real_engine):
    async def run():
        alone = ask(real_engine, "same", "flooder", max_tokens=60)
        await alone.task
        flood = [ask(real_engine, f"flood-{n}", "flooder", max_tokens=300) for n in range(PLACES - 1)]
        last = ask(real_engine, "same", "flooder", max_tokens=60)
        await last.first.wait()
        others = [ask(real_engine, f"other-{n}", "other", max_tokens=300) for n in range(PLACES // 2)]
        await others[-1].first.wait()
        assert not last.task.done()
        await last.task
        assert last.text == alone.text
        await leave(flood + others)

    real_engine.run(run())


def test_a_short_prompt_does_not_wait_for_long_ones_of_its_own_account(real_engine):
    async def run():
        # Prompts differ by the length of a request's name. Each long one takes eight steps of 128 tokens.
        long = [ask(real_engine, "long" + n * "-", "one", prompt_tokens=900, max_tokens=4) for n in range(8)]
        await long[0].first.wait()
        short = ask(real_engine, "short", "one", max_tokens=4)
        await short.first.wait()
        assert sum(one.num_tokens > 0 for one in long) <= 2
        await asyncio.gather(*(one.task for one in long))

    real_engine.run(run())


def test_an_adapter_too_many_waits_a_step():
    def request(adapter):
        return SimpleNamespace(lora_request=adapter and SimpleNamespace(lora_int_id=adapter))

    from deployments.replica.scheduling.fair import _with_adapters

    requests = [request(adapter) for adapter in (1, None, 2, 1, 3, 2, None)]
    assert _with_adapters(requests, 2) == [requests[n] for n in (0, 1, 2, 3, 5, 6)]


def queued(*accounts_and_tokens, priority=0):
    """Return requests as the queue sees them: one of each account, with the tokens that it holds."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    requests = []
    for number, (account, num_tokens) in enumerate(accounts_and_tokens):
        salt = None if account is None else render_salt(account, 1.0, None)
        params = SamplingParams(max_tokens=1)
        requests.append(
            Request(f"{account}-{number}", [1] * num_tokens, params, None, priority=priority, cache_salt=salt)
        )
    return requests


def order_of(requests, *, served):
    """Return the accounts in the order in which their requests leave the queue."""
    from deployments.replica.scheduling.shares import FairQueue, Shares

    shares, queue = Shares(), FairQueue()
    for request in requests:
        shares.join(request)
        queue.add_request(request)
    for request in requests:
        request.payer.served = served.get(request.payer.name, 0)
    return [queue.pop_request().payer.name for _ in requests]


def test_who_was_served_least_is_next_and_a_prompt_counts_when_it_is_taken():
    requests = queued(("a", 10), ("a", 10), ("a", 10), ("b", 24), ("b", 24))
    assert order_of(requests, served={"a": 5}) == ["b", "a", "a", "b", "a"]


def test_lines_of_batches_come_last_whatever_their_account_was_served():
    requests = queued(("line", 1), priority=10) + queued(("a", 10), ("b", 10))
    assert order_of(requests, served={"a": 50, "b": 10}) == ["b", "a", "line"]


def test_who_comes_back_has_saved_nothing_up():
    from deployments.replica.scheduling.shares import Shares

    shares = Shares()
    early, busy = queued(("early", 1), ("busy", 1))
    shares.join(early)
    shares.leave(early)
    shares.join(busy)
    shares.charge(busy.payer, 1000)
    (again,) = queued(("early", 1))
    shares.join(again)
    assert again.payer is early.payer
    assert again.payer.served == busy.payer.served == 1000


def test_an_account_is_light_until_it_was_served_a_part_of_its_share():
    from deployments.replica.scheduling.shares import LIGHT, Shares

    shares = Shares()
    flooder, other = queued(("flooder", 1), ("other", 1))
    shares.join(flooder)
    shares.charge(flooder.payer, 1000)
    shares.weigh(1.0)
    assert not flooder.payer.is_light
    shares.join(other)
    shares.weigh(1.0)
    assert other.payer.is_light
    shares.charge(other.payer, int(1000 * LIGHT))
    shares.weigh(1.0)
    assert not other.payer.is_light


def test_what_was_served_long_ago_is_forgotten():
    from deployments.replica.scheduling.shares import RECENT_S, Shares

    shares = Shares()
    (one,) = queued(("one", 1))
    shares.join(one)
    shares.charge(one.payer, 1000)
    shares.leave(one)
    shares.weigh(1.0)
    assert shares._known == {"one": one.payer}
    shares.weigh(1.0 + 10 * RECENT_S)
    assert not shares._known


def held_by(*requests):
    """Return what running requests hold, whose memory is a block for each token."""
    from vllm.v1.request import RequestStatus

    from deployments.replica.scheduling.fair import Held
    from deployments.replica.scheduling.shares import Shares

    known = Shares()
    for request in requests:
        known.join(request)
        request.status = RequestStatus.RUNNING
    return known, Held(requests, lambda request: request.num_tokens)


def test_who_has_most_places_gives_its_latest_as_long_as_it_keeps_as_many():
    running = queued(("a", 1), ("a", 1), ("a", 1), ("b", 1))
    shares, held = held_by(*running)
    waiting = queued(("b", 1), ("b", 1), ("a", 1), ("c", 1))
    for request in waiting:
        shares.join(request)
    assert held.victim_for(waiting[0], by_places=True) is running[2]
    assert held.victim_for(waiting[2], by_places=True) is None
    held.drop(running[2])
    held.add(waiting[0])
    assert held.victim_for(waiting[1], by_places=True) is None
    assert held.victim_for(waiting[3], by_places=True) is running[1]


def test_who_has_most_memory_gives_it_to_a_prompt_that_needs_less():
    small, large, _ = running = queued(("a", 10), ("a", 60), ("b", 20))
    shares, held = held_by(*running)
    fits, too_large, own = waiting = queued(("c", 10), ("c", 11), ("a", 1))
    for request in waiting:
        shares.join(request)
    assert held.latest_of_most() is large
    assert held.victim_for(fits, by_places=False) is large
    assert held.victim_for(too_large, by_places=False) is None  # It would then have more than it leaves.
    assert held.victim_for(own, by_places=False) is None
    held.drop(large)
    held.drop(small)
    assert held.latest_of_most() is None  # Nobody else is there.


def test_who_was_served_less_gives_nothing_to_who_was_served_more():
    running = queued(("a", 1), ("a", 1), ("a", 1))
    shares, held = held_by(*running)
    (waiting,) = queued(("b", 1))
    shares.join(waiting)
    waiting.payer.served = 10
    assert held.victim_for(waiting, by_places=True) is None
    running[0].payer.served = 10
    assert held.victim_for(waiting, by_places=True) is running[2]
