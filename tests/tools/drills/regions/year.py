"""A year's arithmetic: from how often things die, and what the drills lost by it, to an availability."""

from collections.abc import Mapping
from dataclasses import dataclass

YEAR_S = 365 * 24 * 3600


@dataclass(frozen=True)
class Failure:
    """What dies, and how often in a year.

    `row` is the drill that shows what is lost by it, and `longer` how many times as long it is assumed to last. What no
    drill shows has "", and what it loses is assumed: `served_s` seconds of all chat and embeddings, `stored_s` of all
    that needs the database's primary.
    """

    name: str
    row: str
    per_year: float
    longer: float = 1.0
    served_s: float = 0.0
    stored_s: float = 0.0


FAILURES: tuple[Failure, ...] = (
    Failure("the region with the primary is lost", "region with the primary", 2),
    Failure("the other region is lost", "region without the primary", 2),
    Failure("the PostgreSQL primary dies", "PostgreSQL primary", 6),
    Failure("a bucket is away for ten minutes", "bucket of a region for 30 s", 6, longer=20),
    Failure("the link is cut for ten minutes", "link cut for 60 s", 12, longer=10),
    Failure("a region is drained and upgraded", "nothing: a region is upgraded", 24),
    Failure("both at once: a mistake, a defect, a certificate that has run out", "", 1, served_s=1800, stored_s=1800),
)


@dataclass(frozen=True)
class Year:
    """Seconds of a whole year's requests that a failure costs; None where its drill was not played."""

    failure: Failure
    served_s: float | None
    stored_s: float | None


def add_up(lost: Mapping[str, tuple[float, float]]) -> list[Year]:
    """Return what each failure costs; `lost` has, by drill, the seconds of chat and embeddings, and of turns."""
    years = []
    for one in FAILURES:
        lost_s = lost.get(one.row) if one.row else (one.served_s, one.stored_s)
        times = one.per_year * one.longer
        years.append(Year(one, None, None) if lost_s is None else Year(one, times * lost_s[0], times * lost_s[1]))
    return years


def availability(lost_s: float) -> float:
    """Return the share of a year that is not lost."""
    return 1 - lost_s / YEAR_S


def render_year(years: list[Year]) -> str:
    """Return the arithmetic as a Markdown table. A failure whose drill was not played is not in its sums."""
    lines = ["| failure | a year | chat and embeddings lose | what is stored loses |", "|---|---|---|---|"]
    for one in years:
        lines.append(
            f"| {one.failure.name} | {one.failure.per_year:g} | {_cell(one.served_s)} | {_cell(one.stored_s)} |"
        )
    served, stored = sum(one.served_s or 0.0 for one in years), sum(one.stored_s or 0.0 for one in years)
    lines.append(f"| **together** | | {served:.0f} s | {stored:.0f} s |")
    lines.append(f"| **availability** | | {availability(served):.4%} | {availability(stored):.4%} |")
    return "\n".join(lines) + "\n"


def _cell(seconds: float | None) -> str:
    return "not played" if seconds is None else f"{seconds:.0f} s"
