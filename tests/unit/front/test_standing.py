"""When a region is left, and when it is taken up again."""

import json
from pathlib import Path

import pytest

from serve_app.front.addresses import Address
from serve_app.front.keeping import plan_places
from serve_app.front.runtime import Slot
from serve_app.front.standing import Hysteresis, Standing, load_standing, save_standing
from serve_app.front.timings import FrontTimings

TIMINGS = FrontTimings(leave_after_s=5.0, return_after_s=15.0)
FRESH_S = 60.0


class Region:
    """A region that is looked at twice a second."""

    def __init__(self, *, is_left: bool) -> None:
        self.now = 1000.0
        self.hysteresis = Hysteresis(TIMINGS, self.now, is_left=is_left)

    def look(self, for_s: float, *, is_ready: bool = True, is_drained: bool = False) -> set[bool]:
        """Return what `is_left` was meanwhile."""
        seen = set()
        for _ in range(round(for_s * 2)):
            self.now += 0.5
            self.hysteresis.note(self.now, is_ready=is_ready, is_drained=is_drained)
            seen.add(self.hysteresis.is_left)
        return seen


def test_region_is_left_after_five_seconds_and_taken_up_after_fifteen() -> None:
    region = Region(is_left=False)
    assert region.look(4.5, is_ready=False) == {False}
    assert region.look(1.0, is_ready=False) == {True}
    assert region.look(14.5) == {True}
    assert region.look(1.0) == {False}


@pytest.mark.parametrize("is_left", [False, True])
def test_region_that_flaps_stays_what_it_was(is_left: bool) -> None:
    region = Region(is_left=is_left)
    for _ in range(20):
        assert region.look(4.5, is_ready=False) == {is_left}
        assert region.look(14.0 if is_left else 0.5) == {is_left}


def test_region_that_is_drained_is_left_at_once_and_taken_up_as_any() -> None:
    region = Region(is_left=False)
    assert region.look(0.5, is_drained=True) == {True}
    assert region.look(60.0, is_drained=True) == {True}
    assert region.look(14.5) == {True}
    assert region.look(1.0) == {False}


def test_new_region_is_left_until_it_was_ready_for_a_while() -> None:
    region = Region(is_left=True)
    assert region.look(60.0, is_ready=False) == {True}
    assert region.look(14.5) == {True}
    assert region.look(1.0) == {False}


def test_standing_is_read_as_it_was_saved_while_it_is_fresh(tmp_path: Path) -> None:
    path = tmp_path / "region.json"
    standing = Standing(False, {"asia": (Address("10.0.0.1", 443), Address("::1", 443))})
    save_standing(path, standing, 1000.0)
    assert load_standing(path, 1001.0, FRESH_S) == standing
    assert load_standing(path, 1100.0, FRESH_S) == Standing()
    assert load_standing(path, 999.0, FRESH_S) == Standing()
    for other in ("", "[]", json.dumps({"saved_at": 1000.0, "is_left": False, "addresses": {"asia": ["x"]}})):
        path.write_text(other)
        assert load_standing(path, 1000.0, FRESH_S) == Standing()


def test_places_of_another_region_keep_their_slots() -> None:
    one, two, three = (Address(f"10.0.0.{number}", 443) for number in (1, 2, 3))
    slots = [Slot(f"r{n}", at, "UP", 1, 0, "", "", 0) for n, at in enumerate((one, two), 1)]
    assert plan_places("region_asia", slots, (one, two)) == []
    commands = plan_places("region_asia", slots, (two, three))
    assert commands[0] == "set server region_asia/r1 state maint"
    assert commands[1] == "set server region_asia/r1 addr 10.0.0.3 port 443"
    assert not any("/r2" in command for command in commands)
