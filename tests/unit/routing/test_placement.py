from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from deployments.routing.placement import FREE_LOAD, Choice, place

REPLICAS = [f"replica-{number}" for number in range(4)]


def choice(affinity, excluded=(), loads=None):
    loads = loads or {}
    return Choice(affinity, frozenset(excluded), lambda replica_id: loads.get(replica_id, 0))


def test_requests_with_the_same_prefix_share_a_replica_when_it_has_room():
    assert len({place(choice("prefix"), REPLICAS) for _ in range(50)}) == 1


def test_prefixes_spread_over_the_replicas():
    counts = Counter(place(choice(f"prefix {number}"), REPLICAS) for number in range(4000))
    assert set(counts) == set(REPLICAS)
    assert max(counts.values()) < 1.25 * min(counts.values())


def test_only_the_prefixes_of_a_lost_replica_move_when_it_goes():
    before = {f"p{number}": place(choice(f"p{number}"), REPLICAS) for number in range(500)}
    after = {prefix: place(choice(prefix), REPLICAS[:-1]) for prefix in before}
    assert all(after[prefix] == replica for prefix, replica in before.items() if replica != REPLICAS[-1])


def test_a_popular_prefix_overflows_to_another_replica_when_its_own_is_far_busier():
    favourite = place(choice("hot"), REPLICAS)
    loads = dict.fromkeys(REPLICAS, 10) | {favourite: 10 * FREE_LOAD}
    assert place(choice("hot", loads=loads), REPLICAS) != favourite


@given(st.text(), st.sets(st.sampled_from(REPLICAS)), st.none() | st.text())
def test_an_excluded_replica_is_taken_only_when_there_is_no_other(prefix, excluded, affinity):
    chosen = place(choice(affinity, excluded), REPLICAS)
    assert chosen in REPLICAS
    assert chosen not in excluded or excluded == set(REPLICAS)


def test_the_less_busy_of_two_is_taken_when_there_is_no_prefix():
    loads = {"replica-0": 5, "replica-1": 0}
    assert place(choice(None, loads=loads), REPLICAS[:2]) == "replica-1"
