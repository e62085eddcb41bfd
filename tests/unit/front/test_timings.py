"""The front's times, and what the documentation makes of them."""

from pathlib import Path

from deployments.patience import waits
from serve_app.front.timings import USUAL, FrontTimings

DOCS = Path(__file__).parents[3] / "docs"


def test_every_time_says_what_it_is_for_and_which_page_promises_it() -> None:
    for name, timing in waits(FrontTimings).items():
        assert timing.meaning.endswith("."), name
        assert not timing.promised or (DOCS / timing.promised).is_file(), name


def test_what_waits_for_another_time_is_longer_than_that() -> None:
    assert USUAL.hear_s < USUAL.round_s
    assert USUAL.check_s < USUAL.silent_s < USUAL.forget_s
    assert max(USUAL.ask_s, USUAL.lists_s) < USUAL.forget_s  # What answers is not forgotten.
    assert USUAL.save_s < USUAL.fresh_s  # What nothing changes stays fresh.
    assert USUAL.leave_after_s < USUAL.return_after_s
