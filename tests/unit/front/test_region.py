"""When a region is drained, and when it serves again."""

import json
from pathlib import Path

import pytest

from serve_app.front.addresses import Address
from serve_app.front.region import Hysteresis
from serve_app.front.runtime import Slot, plan_places
from serve_app.front.table import RegionState, load_region, save_region
from serve_app.front.timings import FrontTimings

TIMINGS = FrontTimings(leave_after_s=5.0, return_after_s=15.0)
FRESH_S = 60.0


class Region:
    """A region that is looked at twice a second."""

    def __init__(self, *, is_drained: bool) -> None:
        self.now = 1000.0
        self.hysteresis = Hysteresis(TIMINGS, self.now, is_drained=is_drained)

    def look(self, for_s: float, *, is_ready: bool = True, must_drain: bool = False) -> set[bool]:
        """Return what `is_drained` was meanwhile."""
        seen = set()
        for _ in range(round(for_s * 2)):
            self.now += 0.5
            self.hysteresis.note(self.now, is_ready=is_ready, must_drain=must_drain)
            seen.add(self.hysteresis.is_drained)
        return seen


def test_region_is_drained_after_five_seconds_and_serves_again_after_fifteen() -> None:
    region = Region(is_drained=False)
    assert region.look(4.5, is_ready=False) == {False}
    assert region.look(1.0, is_ready=False) == {True}
    assert region.look(14.5) == {True}
    assert region.look(1.0) == {False}


@pytest.mark.parametrize("is_drained", [False, True])
def test_region_that_flaps_stays_what_it_was(is_drained: bool) -> None:
    region = Region(is_drained=is_drained)
    for _ in range(20):
        assert region.look(4.5, is_ready=False) == {is_drained}
        assert region.look(14.0 if is_drained else 0.5) == {is_drained}


def test_region_that_the_operator_drains_is_drained_at_once_and_serves_again_as_any() -> None:
    region = Region(is_drained=False)
    assert region.look(0.5, must_drain=True) == {True}
    assert region.look(60.0, must_drain=True) == {True}
    assert region.look(14.5) == {True}
    assert region.look(1.0) == {False}


def test_new_region_is_drained_until_it_was_ready_for_a_while() -> None:
    region = Region(is_drained=True)
    assert region.look(60.0, is_ready=False) == {True}
    assert region.look(14.5) == {True}
    assert region.look(1.0) == {False}


def test_state_is_read_as_it_was_saved_while_it_is_fresh(tmp_path: Path) -> None:
    path = tmp_path / "region.json"
    state = RegionState(False, {"asia": (Address("10.0.0.1", 443), Address("::1", 443))})
    save_region(path, state, 1000.0)
    assert load_region(path, 1001.0, FRESH_S) == state
    assert load_region(path, 1100.0, FRESH_S) == RegionState()
    assert load_region(path, 999.0, FRESH_S) == RegionState()
    for other in ("", "[]", json.dumps({"saved_at": 1000.0, "is_left": False, "addresses": {"asia": ["x"]}})):
        path.write_text(other)
        assert load_region(path, 1000.0, FRESH_S) == RegionState()


def test_places_of_another_region_keep_their_slots() -> None:
    one, two, three = (Address(f"10.0.0.{number}", 443) for number in (1, 2, 3))
    slots = [Slot(f"r{n}", at, "UP", 1, 0, "", "", 0) for n, at in enumerate((one, two), 1)]
    assert plan_places("region_asia", slots, (one, two)) == []
    commands = plan_places("region_asia", slots, (two, three))
    assert commands[0] == "set server region_asia/r1 state maint"
    assert commands[1] == "set server region_asia/r1 addr 10.0.0.3 port 443"
    assert not any("/r2" in command for command in commands)
