"""Which courses of a long batch are within the bounds."""

from dataclasses import replace

import pytest

from tests.tools.bench.batch_pipeline import Course

EVEN = Course(1.0, 30.0, 300, [(1.0 + second, 2_500 * second) for second in range(1, 21)])


def test_times_lie_between_commits_in_proportion() -> None:
    assert EVEN.time_at(0) == 1.0
    assert EVEN.time_at(10_000) == 5.0
    assert EVEN.time_at(11_250) == 5.5
    with pytest.raises(ValueError, match="never done"):
        EVEN.time_at(50_001)


def test_an_even_course_is_within_the_bounds() -> None:
    assert EVEN.broken_bounds() == []


def test_what_breaks_a_bound_is_named() -> None:
    (late,) = replace(EVEN, validated_s=20.5, seen=[(at + 20, num) for at, num in EVEN.seen]).broken_bounds()
    assert late.startswith("It was validated after 20.5 s")
    (large,) = replace(EVEN, most_mib=513).broken_bounds()
    assert large.startswith("513 MiB")
    slowing = [(at if num <= 40_000 else at * 1.1, num) for at, num in EVEN.seen]
    (slow,) = replace(EVEN, seen=slowing).broken_bounds()
    assert slow.startswith("The last 10000 lines took 6.10 s, the first 4.00 s")
