"""Clocks that nobody can set."""

from deployments.state.database.clock import PastClock, SteadyClock, uptime
from tests.twins.gatekeeper import TestClock


def test_uptime_only_goes_on() -> None:
    seen = [uptime() for _ in range(100)]
    assert seen == sorted(seen)


def test_a_steady_clock_goes_on_from_what_was_reached_earlier() -> None:
    wall, monotonic = TestClock(100.0), TestClock(7.0)
    ahead, behind = SteadyClock(50.0, wall, monotonic), SteadyClock(150.0, wall, monotonic)
    wall.advance(-90.0)
    monotonic.advance(3.0)
    assert (ahead(), behind()) == (103.0, 153.0)


def test_a_past_clock_follows_the_wall_clock_but_for_its_jumps_ahead() -> None:
    wall, monotonic = TestClock(100.0), TestClock(7.0)
    past = PastClock(wall, monotonic)
    wall.advance(5.0)
    monotonic.advance(5.0)
    assert past() == 105.0
    wall.advance(1e6)
    assert past() == 105.0
    wall.advance(-1e6 - 50.0)
    assert past() == 55.0
