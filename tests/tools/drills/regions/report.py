"""The table of a run over two regions, and a round in some lines."""

from collections.abc import Iterable, Mapping

from tests.tools.drills.regions.rounds import RegionRound
from tests.tools.drills.report import render_head

COLUMNS = (
    "what dies",
    "requests",
    "failed",
    "allowed",
    "chat, waits p99",
    "turns, waits p99",
    "chat, turns lost",
    "first token by side",
    "turn stored by side",
    "primary moved after",
    "region back after",
    "batch",
    "limit",
    "promise",
)


def render_table(rounds: Iterable[RegionRound]) -> str:
    """Return the rounds as a Markdown table, one row each."""
    return render_head(COLUMNS) + "".join(f"| {' | '.join(cells_of(one))} |\n" for one in rounds)


def cells_of(one: RegionRound) -> list[str]:
    """Return the cells of a row."""
    wrongs = ", ".join(f"{wrong} {num}" for wrong, num in one.wrongs.items())
    broken = "**broken**" if one.is_held else "not held yet"
    return [
        one.name,
        str(one.requests),
        str(one.failed),
        str(one.excused),
        _seconds(one.served_p99_s),
        _seconds(one.stored_p99_s),
        f"{one.served_lost_s:.1f} s, {one.stored_lost_s:.1f} s",
        _by_side(one.first_token_s),
        _by_side(one.stored_s),
        _seconds(one.notes.get("promoted")),
        _seconds(one.notes.get("back")),
        one.batch,
        one.limit,
        f"{broken}: {wrongs}" if wrongs else "kept",
    ]


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


def _by_side(values: Mapping[str, float]) -> str:
    return ", ".join(f"{side} {value * 1000:.0f} ms" for side, value in sorted(values.items()))


def describe(one: RegionRound) -> str:
    """Return a round in some lines, to watch the run by."""
    lines = [
        f"{one.name}: {one.requests} calls, {one.failed} failed, {one.excused} of them allowed",
        f"    waits p99: served {_seconds(one.served_p99_s)}, stored {_seconds(one.stored_p99_s)}; {one.notes}",
        f"    lost: served {one.served_lost_s} s, stored {one.stored_lost_s} s",
        f"    first token {one.first_token_s} s, turn stored after {one.stored_s} s; {one.batch}; {one.limit}",
        *(f"    {num} x {way}" for way, num in one.ways_to_fail.items()),
        *(f"  ! {fault}" for fault in one.faults),
    ]
    return "\n".join(lines)
