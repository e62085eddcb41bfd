"""Shares of regions: they add up to the limit."""

from hypothesis import given
from hypothesis import strategies as st

from deployments.limits.shares import Share


@given(st.integers(0, 10**9), st.sets(st.sampled_from("abcdefgh"), min_size=1))
def test_the_shares_of_all_regions_add_up_to_the_limit(limit: int, names: set[str]) -> None:
    shares = [Share.of_region(name, names).of(limit) for name in sorted(names)]
    assert sum(shares) == limit
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)


def test_the_first_region_has_the_only_request() -> None:
    assert [Share.of_region(name, "ba").of(1) for name in "ab"] == [1, 0]
