import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.limits.contract import Quota
from deployments.models.contract.engine import Usage
from serve_app.errors.capacity import EngineOverloaded, RateLimited
from serve_app.http.admission import (
    UNKNOWN_COMPLETION_TOKENS,
    Admission,
    CompletionEstimator,
    PromptEstimator,
    quota_headers,
)
from serve_app.operations.contract import Cost
from tests.twins.gatekeeper import MemoryGatekeeper, TestClock
from tests.twins.keys import principal_of_key

PRINCIPAL = principal_of_key(organization="org", requests_per_minute=5, tokens_per_minute=10_000)


@pytest.fixture
def gatekeeper():
    return MemoryGatekeeper({}, TestClock())


def cost(prompt=100, bound=None, at_most=4000):
    return Cost("m", prompt, bound, at_most)


def remaining(gatekeeper):
    return gatekeeper.quota(PRINCIPAL).remaining_tokens


async def test_admit_counts_requests_until_none_are_left(gatekeeper):
    admission = Admission(gatekeeper)
    for _ in range(5):
        async with await admission.admit(PRINCIPAL):
            pass
    with pytest.raises(RateLimited) as refused:
        await admission.admit(PRINCIPAL)
    assert refused.value.type == "requests"
    assert admission.quota(PRINCIPAL).remaining_requests == 0


async def test_reserve_holds_prompt_and_bound_in_full(gatekeeper):
    ticket = await Admission(gatekeeper).admit(PRINCIPAL)
    await ticket.reserve(cost(bound=3000))
    assert ticket.reserved_tokens == 3100
    assert remaining(gatekeeper) == 6900


async def test_reserve_holds_no_more_than_the_model_could_generate(gatekeeper):
    ticket = await Admission(gatekeeper).admit(PRINCIPAL)
    await ticket.reserve(cost(bound=1_000_000, at_most=500))
    assert ticket.reserved_tokens == 600


async def test_what_is_cut_off_a_prompt_is_held_and_stays_charged(gatekeeper):
    admission = Admission(gatekeeper)
    ticket = await admission.admit(PRINCIPAL)
    await ticket.reserve(Cost("m", 100, 200, 4000, cut_tokens=3000))
    assert ticket.reserved_tokens == 3300
    ticket.settle(Usage(90, 10))
    assert remaining(gatekeeper) == 10_000 - 3100
    with pytest.raises(RateLimited):
        await (await admission.admit(PRINCIPAL)).reserve(Cost("m", 100, 200, 4000, cut_tokens=15_000_000))


async def test_reserve_without_a_bound_holds_a_guess(gatekeeper):
    ticket = await Admission(gatekeeper).admit(PRINCIPAL)
    await ticket.reserve(cost())
    assert ticket.reserved_tokens == 100 + UNKNOWN_COMPLETION_TOKENS


async def test_reserve_without_a_bound_holds_what_is_usual(gatekeeper):
    admission = Admission(gatekeeper)
    for _ in range(4):
        ticket = await admission.admit(PRINCIPAL)
        await ticket.reserve(cost())
        ticket.settle(Usage(100, 40))
    ticket = await admission.admit(PRINCIPAL)
    await ticket.reserve(cost())
    assert 140 <= ticket.reserved_tokens < 190


async def test_reserve_without_a_bound_never_refuses_a_prompt_that_fits(gatekeeper):
    ticket = await Admission(gatekeeper).admit(PRINCIPAL)
    await ticket.reserve(cost(prompt=9_990))
    assert ticket.reserved_tokens == 10_000


@pytest.mark.parametrize(("bound", "held"), [(50, 300), (9_890, 10_000)])
async def test_reserve_holds_what_prompts_really_take_but_never_more_than_a_minute(bound, held):
    first, second = MemoryGatekeeper({}, TestClock()), MemoryGatekeeper({}, TestClock())
    admission = Admission(first)
    ticket = await admission.admit(PRINCIPAL)
    await ticket.reserve(cost(bound=50))
    ticket.settle(Usage(250, 0))  # Two and a half times what was estimated.
    admission.gatekeeper = second
    ticket = await admission.admit(PRINCIPAL)
    await ticket.reserve(cost(bound=bound, at_most=9_900))
    assert ticket.reserved_tokens == held


def test_prompt_ratio_rises_at_once_and_falls_slowly():
    ratios = PromptEstimator(max_entries=4)
    assert ratios.usual("k", "m") == 1
    ratios.learn("k", "m", 10, 30)
    assert ratios.usual("k", "m") == ratios.usual("other", "m") == 3
    ratios.learn("k", "m", 100, 100)
    assert 2.5 < ratios.usual("k", "m") < 3
    for _ in range(100):
        ratios.learn("k", "m", 100, 100)
    assert ratios.usual("k", "m") < 1.1
    for model in ("n", "o"):
        ratios.learn("k", model, 10, 30)
    assert ratios.usual("k", "m") == 1


@pytest.mark.parametrize("too_much", [cost(prompt=10_001), cost(prompt=7000, bound=3001)])
async def test_reserve_refuses_for_good_when_it_can_never_fit(gatekeeper, too_much):
    ticket = await Admission(gatekeeper).admit(PRINCIPAL)
    with pytest.raises(RateLimited, match="Request too large for m in organization org") as refused:
        await ticket.reserve(too_much)
    assert refused.value.headers == {"x-should-retry": "false"}
    assert remaining(gatekeeper) == 10_000


async def test_reserve_refuses_for_now_when_the_minute_is_used_up(gatekeeper):
    admission = Admission(gatekeeper)
    first = await admission.admit(PRINCIPAL)
    await first.reserve(cost(bound=3900))
    second = await admission.admit(PRINCIPAL)
    await second.reserve(cost(bound=3900))
    third = await admission.admit(PRINCIPAL)
    with pytest.raises(RateLimited, match=r"Limit 10000, Used 8000, Requested 4000") as refused:
        await third.reserve(cost(bound=3900))
    assert refused.value.type == "tokens"
    assert refused.value.headers["retry-after"] == "60"
    third.refund()
    assert len(gatekeeper.settled) == 0


async def test_leaving_the_context_refunds(gatekeeper):
    with pytest.raises(ValueError, match="boom"):
        async with await Admission(gatekeeper).admit(PRINCIPAL) as ticket:
            await ticket.reserve(cost(bound=3000))
            raise ValueError("boom")
    assert remaining(gatekeeper) == 10_000
    assert gatekeeper.settled == [("key_1", 3100, 0)]


async def test_detached_ticket_outlives_its_context(gatekeeper):
    async with await Admission(gatekeeper).admit(PRINCIPAL) as ticket:
        await ticket.reserve(cost(bound=3000))
        kept = ticket.detach()
    assert remaining(gatekeeper) == 6900
    kept.settle(Usage(90, 10))
    assert remaining(gatekeeper) == 9900


async def test_settle_without_usage_refunds(gatekeeper):
    ticket = await Admission(gatekeeper).admit(PRINCIPAL)
    await ticket.reserve(cost(bound=3000))
    ticket.settle(None)
    assert remaining(gatekeeper) == 10_000


closings = st.lists(
    st.one_of(st.none(), st.just("refund"), st.just("leave"), st.integers(0, 5000).map(lambda n: Usage(n, n))),
    max_size=6,
)


@given(bound=st.one_of(st.none(), st.integers(1, 3000)), closings=closings, is_detached=st.booleans())
async def test_ticket_is_closed_exactly_once_whatever_happens(bound, closings, is_detached):
    gatekeeper = MemoryGatekeeper({}, TestClock())
    async with await Admission(gatekeeper).admit(PRINCIPAL) as ticket:
        await ticket.reserve(cost(bound=bound))
        held = ticket.reserved_tokens
        if is_detached:
            ticket.detach()
        for closing in closings:
            if closing == "refund":
                ticket.refund()
            elif closing == "leave":
                await ticket.__aexit__(None, None, None)
            else:
                ticket.settle(closing)
    ticket.refund()
    assert len(gatekeeper.settled) == 1
    assert gatekeeper.settled[0][:2] == ("key_1", held)
    assert ticket.reserved_tokens == 0


@given(st.lists(st.integers(0, 100_000), min_size=30, max_size=60))
def test_usual_lies_within_what_was_seen(seen):
    habits = CompletionEstimator()
    for tokens in seen:
        habits.learn("k", "m", tokens)
    assert 1 <= habits.usual("k", "m") <= 3 * max(*seen, 1)


def test_usual_settles_where_requests_are_alike():
    habits = CompletionEstimator()
    for _ in range(40):
        habits.learn("k", "m", 300)
    assert habits.usual("k", "m") == 300
    assert habits.usual("k", "other") == UNKNOWN_COMPLETION_TOKENS


def test_habits_forget_the_longest_unused():
    habits = CompletionEstimator(max_entries=2)
    for model in ("a", "b", "a", "c"):
        habits.learn("k", model, 7)
    assert habits.usual("k", "b") == UNKNOWN_COMPLETION_TOKENS
    assert habits.usual("k", "a") < UNKNOWN_COMPLETION_TOKENS
    assert habits.usual("k", "c") < UNKNOWN_COMPLETION_TOKENS


def test_headers_show_the_quota_as_go_prints_it():
    headers = dict(quota_headers(Quota(60, -1, 1.5, 200_000, 199_000, 0.012)))
    assert headers == {
        b"x-ratelimit-limit-requests": b"60",
        b"x-ratelimit-remaining-requests": b"0",
        b"x-ratelimit-reset-requests": b"1.5s",
        b"x-ratelimit-limit-tokens": b"200000",
        b"x-ratelimit-remaining-tokens": b"199000",
        b"x-ratelimit-reset-tokens": b"12ms",
    }


async def test_an_account_that_sends_many_at_once_leaves_others_their_turn():
    other = principal_of_key(account="other", key_id="other")
    flooder = principal_of_key(account="flooder", key_id="flooder", requests_per_minute=1000)
    admission, admitted = Admission(MemoryGatekeeper({}, TestClock())), []

    async def admit(principal):
        await admission.admit(principal)
        admitted.append(principal.account)

    await asyncio.gather(*(admit(flooder) for _ in range(100)), admit(other))
    assert admitted.index("other") < 10


async def test_the_last_places_are_for_accounts_with_less_than_an_equal_part():
    flooder, other = (
        principal_of_key(account=name, key_id=name, requests_per_minute=1000) for name in ("flooder", "other")
    )
    admission = Admission(MemoryGatekeeper({}, TestClock()), num_places=16)
    tickets = [await admission.admit(flooder) for _ in range(14)]
    with pytest.raises(EngineOverloaded):
        await admission.admit(flooder)
    assert admission.quota(flooder).remaining_requests == 986  # What is refused so counts nowhere.
    async with await admission.admit(other), await admission.admit(other):
        with pytest.raises(EngineOverloaded):
            await admission.admit(flooder)
    for ticket in tickets[:3]:
        ticket.detach().leave_place()
        ticket.refund()  # It has no place any more.
    assert [await admission.admit(flooder) for _ in range(3)]
    with pytest.raises(EngineOverloaded):
        await admission.admit(flooder)


async def test_a_refused_request_holds_no_place():
    admission = Admission(MemoryGatekeeper({}, TestClock()), num_places=8)
    once = principal_of_key(account="once", requests_per_minute=1)
    async with await admission.admit(once):
        for _ in range(10):
            with pytest.raises(RateLimited):
                await admission.admit(once)
