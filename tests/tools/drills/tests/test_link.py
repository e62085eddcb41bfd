"""One direction of the link between two regions."""

import random

from tests.tools.drills.regions.link import QUEUE_S, Lane

PACKET = bytes(1000)


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def arrived(lane: Lane, clock: Clock, at: float) -> list[bytes]:
    clock.now = at
    return list(lane.arrived())


def test_packet_arrives_after_the_delay_and_its_own_length() -> None:
    clock = Clock()
    lane = Lane(0.075, bytes_per_s=100_000, clock=clock)
    lane.take(PACKET)
    assert lane.next_at == 0.01 + 0.075
    assert arrived(lane, clock, 0.084) == []
    assert arrived(lane, clock, 0.086) == [PACKET]
    assert lane.next_at is None


def test_packets_arrive_in_order_at_the_rate() -> None:
    clock = Clock()
    lane = Lane(0.0, bytes_per_s=100_000, clock=clock)
    sent = [bytes([n]) * 1000 for n in range(5)]
    for packet in sent:
        lane.take(packet)
    assert arrived(lane, clock, 0.025) == sent[:2]
    assert arrived(lane, clock, 0.055) == sent[2:]


def test_queue_is_bounded() -> None:
    clock = Clock()
    lane = Lane(0.0, bytes_per_s=10_000, clock=clock)
    for _ in range(100):
        lane.take(PACKET)
    assert len(arrived(lane, clock, 100.0)) == QUEUE_S * 10 + 1


def test_cut_loses_what_is_under_way_and_what_comes() -> None:
    clock = Clock()
    lane = Lane(0.075, clock=clock)
    lane.take(b"under way")
    lane.cut()
    lane.take(b"meanwhile")
    assert arrived(lane, clock, 1.0) == []
    lane.heal()
    lane.take(b"after")
    assert arrived(lane, clock, 2.0) == [b"after"]


def test_loss_is_the_share_that_is_asked_for() -> None:
    clock = Clock()
    lane = Lane(0.0, loss=0.25, bytes_per_s=1e12, clock=clock, chance=random.Random(7))
    for _ in range(4000):
        lane.take(b"x")
    assert 2850 < len(arrived(lane, clock, 1.0)) < 3150
