from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.limits.window import EXACT_CHARGES, RESOLUTION_S, WINDOW_S, KeyLimits, Room, Shortage, Window

LIMIT = 12
# Multiples of 1/64 s add without rounding, so that the oracle's comparisons are exact.
STEPS = st.integers(min_value=0, max_value=64 * 40).map(lambda ticks: ticks / 64)


def most_in_any_minute(charges: list[tuple[float, int]]) -> int:
    """The largest sum of amounts that any half-open minute holds, by trying the minute that starts at each charge."""
    return max((sum(a for t, a in charges if start <= t < start + WINDOW_S) for start, _ in charges), default=0)


def earliest_fit(charges: list[tuple[float, int]], amount: int, now: float) -> float:
    """The first moment from `now` on at which `amount` fits, by trying every moment at which a charge expires."""
    for moment in sorted([now, *(t + WINDOW_S for t, _ in charges if t + WINDOW_S > now)]):
        if sum(a for t, a in charges if t + WINDOW_S > moment) + amount <= LIMIT:
            return moment
    raise AssertionError("nothing charged is left after the last expiry")


@given(st.lists(st.tuples(STEPS, st.integers(1, LIMIT)), max_size=60))
def test_no_minute_holds_more_than_the_limit_whatever_is_asked(asks: list[tuple[float, int]]) -> None:
    limits, now, charges = KeyLimits(LIMIT, 1), 1000.0, []
    for step, amount in asks:
        now += step
        answer = limits.take(now, now, requests=amount)
        if isinstance(answer, Room):
            charges.append((now, amount))
        else:
            assert answer.retry_after_s == earliest_fit(charges, amount, now) - now
    assert most_in_any_minute(charges) <= LIMIT


@given(st.lists(st.tuples(STEPS, st.integers(1, LIMIT), st.integers(0, LIMIT), st.booleans()), max_size=60))
def test_refunds_leave_exactly_what_was_used_when_they_name_their_charge(
    asks: list[tuple[float, int, int, bool]],
) -> None:
    limits, now = KeyLimits(1, LIMIT), 1000.0
    used: dict[float, int] = {}
    open_reservations: list[tuple[float, int, int]] = []
    for step, amount, use, settle_first in asks:
        now += step
        if settle_first and open_reservations:
            at, reserved, real = open_reservations.pop(0)
            assert limits.tokens.refund(at, reserved - real, now) == (reserved - real if now < at + WINDOW_S else 0)
            used[at] -= reserved - real
        if isinstance(limits.take(now, now, tokens=amount), Room):
            used[now] = used.get(now, 0) + amount
            open_reservations.append((now, amount, min(use, amount)))
        limits.tokens.expire(now)
        assert limits.tokens.used == sum(a for at, a in used.items() if at + WINDOW_S > now)
    assert most_in_any_minute(list(used.items())) <= LIMIT


def test_everything_is_free_when_a_minute_has_passed() -> None:
    limits = KeyLimits(10, 40_000)
    for _ in range(10):
        assert isinstance(limits.take(0.0, 0.0, requests=1, tokens=4_000), Room)
    assert isinstance(limits.take(59.99, 59.99, requests=1), Shortage)
    assert limits.take(60.0, 60.0, requests=10, tokens=40_000) == Room(10, 40_000)


def test_an_amount_that_never_fits_has_no_wait() -> None:
    shortage = KeyLimits(10, 100).take(0.0, 0.0, tokens=101)
    assert shortage == Shortage("tokens", 100, 0, 101, None)


def test_neither_dimension_is_charged_when_one_has_no_room() -> None:
    limits = KeyLimits(10, 100)
    assert isinstance(limits.take(0.0, 0.0, requests=1, tokens=101), Shortage)
    assert limits.requests.used == limits.tokens.used == 0


def test_a_charge_in_the_future_counts_now_and_until_a_minute_after_it() -> None:
    limits = KeyLimits(1, 1)
    assert limits.take(0.0, 0.5, requests=1) == Room(1, 0)
    shortage = limits.take(60.25, 60.25, requests=1)
    assert isinstance(shortage, Shortage)
    assert shortage.retry_after_s == 0.25


def test_spare_is_not_given_where_the_limit_is_small() -> None:
    limits = KeyLimits(120, 1_000_000)
    assert limits.take(0.0, 0.0, requests=1, spare_requests=50, spare_tokens=500) == Room(1, 0)


def test_spare_leaves_room_for_every_client_when_the_limit_is_large() -> None:
    limits = KeyLimits(1_001, 2_000_001)
    room = limits.take(0.0, 0.0, requests=1, tokens=1, spare_requests=10**6, spare_tokens=10**9, num_clients=4)
    assert room == Room(1 + 1000 // 8, 1 + 2_000_000 // 8)


def test_spare_is_not_given_when_only_the_need_fits() -> None:
    limits = KeyLimits(200, 1)
    assert limits.take(0.0, 0.0, requests=199) == Room(199, 0)
    assert limits.take(0.0, 0.0, requests=1, spare_requests=100) == Room(1, 0)


def test_memory_stays_bounded_when_every_millisecond_is_charged() -> None:
    window = Window()
    for millisecond in range(120_000):
        now = millisecond / 1000
        window.expire(now)
        window.charge(now, 1)
    assert len(window.entries()) < EXACT_CHARGES + 620
    assert 60_000 <= window.used <= 60_200
    assert len(window._times) < 3_000


@given(st.integers(0, 2**32).map(Random))
def test_merged_charges_never_leave_early_and_late_by_less_than_the_resolution(random: Random) -> None:
    window, now, made = Window(), 0.0, []
    for _ in range(random.randint(200, 500)):
        now += random.randint(0, 4) / 128
        amount = random.randint(1, 5)
        window.charge(now, amount)
        made.append((now, amount))
    edges = [t + WINDOW_S + late / 128 for t, _ in made[::40] for late in (0, 1)]
    for moment in sorted([now, now + 30, now + 60, *edges]):
        window.expire(moment)
        charged = [(t, a) for t, a in made if t + WINDOW_S + RESOLUTION_S > moment]
        real = sum(a for t, a in charged if t + WINDOW_S > moment)
        assert real <= window.used <= sum(a for _, a in charged)


def test_a_charge_out_of_order_is_kept_in_its_place() -> None:
    window = Window()
    window.charge(10.0, 1)
    window.charge(20.0, 2)
    window.charge(15.0, 4)
    window.charge(15.0, 8)
    assert window.entries() == [(10.0, 1), (15.0, 12), (20.0, 2)]
    assert window.refund(15.0, 100, now=30.0) == 12
    assert window.refund(21.0, 1, now=30.0) == 0
    assert window.used == 3


def test_waits_are_long_enough_on_a_clock_that_rounds() -> None:
    for tenth in range(200):
        limits, now = KeyLimits(1, 1), 1_700_000_000.1 + tenth / 10
        limits.take(now, now, requests=1)
        now += 0.3
        shortage = limits.take(now, now, requests=1)
        assert isinstance(shortage, Shortage)
        assert shortage.retry_after_s == pytest.approx(59.7, abs=1e-5)
        assert isinstance(limits.take(now + shortage.retry_after_s, now + shortage.retry_after_s, requests=1), Room)


def test_reset_is_when_the_last_charge_expires() -> None:
    window = Window()
    assert window.reset_s(0.0) == 0.0
    window.charge(0.0, 1)
    window.charge(10.0, 1)
    assert window.reset_s(20.0) == 50.0
    window.refund(10.0, 1, now=20.0)
    assert window.reset_s(20.0) == 40.0
