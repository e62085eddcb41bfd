import random

import pytest

from deployments.state.usage.rollups import LAST, LEAST_S, bucket_of, percentiles, seconds_of


@pytest.mark.parametrize("seconds", [1.0001e-4, 0.0007, 0.05, 0.0500001, 1.0, 59.9, 3_600.0, 28_000.0])
def test_the_middle_of_a_bucket_is_within_two_and_a_half_percent(seconds: float) -> None:
    assert seconds_of(bucket_of(seconds)) == pytest.approx(seconds, rel=0.0251)


def test_latencies_beyond_the_ends_are_in_the_first_and_the_last_bucket() -> None:
    assert [bucket_of(seconds) for seconds in (-1.0, 0.0, LEAST_S, 1e9)] == [0, 0, 0, LAST]
    assert bucket_of(LEAST_S * 1.0001) == 1


def test_percentiles_are_those_of_the_latencies_that_were_counted() -> None:
    chance = random.Random(7)
    latencies = sorted(chance.lognormvariate(-1, 1) for _ in range(2_000))
    counts: dict[int, int] = {}
    for one in latencies:
        counts[bucket_of(one)] = counts.get(bucket_of(one), 0) + 1
    for share, found in zip((0.5, 0.95, 0.99, 1.0), percentiles(counts, (0.5, 0.95, 0.99, 1.0)), strict=True):
        assert found == pytest.approx(latencies[round(2_000 * share) - 1], rel=0.03)
    assert percentiles({}, (0.5, 0.99)) == [None, None]
