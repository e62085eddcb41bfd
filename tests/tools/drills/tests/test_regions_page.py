"""The page of two regions: its rows, and the year that follows from them."""

import pytest

from tests.tools.drills.regions.page import MARKS, PAGE, fill
from tests.tools.drills.regions.table import REGION_DRILLS
from tests.tools.drills.regions.year import FAILURES, YEAR_S, add_up, availability

ROUND = {
    "name": "region with the primary",
    "is_held": True,
    "requests": 900,
    "failed": 4,
    "excused": 4,
    "ways_to_fail": {},
    "served_p99_s": 3.0,
    "stored_p99_s": 25.0,
    "served_lost_s": 1.5,
    "stored_lost_s": 20.0,
    "first_token_s": {"us": 0.03, "asia": 0.031},
    "stored_s": {},
    "notes": {"promoted": 21.5},
    "batch": "exact: 500 lines in 90 s",
    "limit": "",
    "wrongs": {},
}
MACHINE = {"date": "2026-11-25 06:00:00", "commit": "abc", "cpu": "2 cores", "memory": "24 GB"}


def test_failures_name_drills_that_exist() -> None:
    assert {one.row for one in FAILURES} - {""} <= {drill.name for drill in REGION_DRILLS}


def test_no_drill_is_listed_twice() -> None:
    assert len({drill.name for drill in REGION_DRILLS}) == len(REGION_DRILLS)


def test_year_takes_what_the_drills_lost() -> None:
    years = {
        one.failure.row: one for one in add_up({"PostgreSQL primary": (0.0, 2.5), "link cut for 60 s": (0.5, 30.0)})
    }
    assert (years["PostgreSQL primary"].served_s, years["PostgreSQL primary"].stored_s) == (0.0, 6 * 2.5)
    assert (years["link cut for 60 s"].served_s, years["link cut for 60 s"].stored_s) == (12 * 5.0, 12 * 300.0)
    assert years["region with the primary"].stored_s is None
    assert years[""].served_s == 1800
    assert availability(YEAR_S / 1000) == pytest.approx(0.999)


def test_page_has_the_rows_and_the_year() -> None:
    page = fill(PAGE.read_text(), [{"machine": MACHINE, "rounds": [ROUND]}])
    (row,) = [line for line in page.splitlines() if line.startswith("| region with the primary")]
    assert "| 3.00 s | 25.00 s | 1.5 s, 20.0 s | asia 31 ms, us 30 ms |  | 21.50 s |" in row
    assert "2026-11-25 06:00, abc" in row
    assert "| the region with the primary is lost | 2 | 3 s | 40 s |" in page
    assert "| the PostgreSQL primary dies | 6 | not played | not played |" in page
    assert all(page.count(mark) == 1 for marks in MARKS.values() for mark in marks)
    assert fill(page, [{"machine": MACHINE, "rounds": [ROUND]}]) == page
