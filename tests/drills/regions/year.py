"""A year's arithmetic: from how often things die, and how long the drills took to recover, to an availability."""

from collections.abc import Mapping
from dataclasses import dataclass

YEAR_S = 365 * 24 * 3600


@dataclass(frozen=True)
class Failure:
    """What dies, how often in a year, and how long a part of the requests then waits or fails, in seconds.

    `row` is the drill that shows it, "" for what no drill shows; `served_s` and `stored_s` are then assumed. `served`
    is chat and embeddings, `stored` what needs the database's primary. The shares are of all requests of that kind.
    """

    name: str
    row: str
    per_year: float
    served_share: float
    stored_share: float
    served_s: float = 0.0
    stored_s: float = 0.0


FAILURES: tuple[Failure, ...] = (
    Failure("the region with the primary is lost", "region with the primary", 2, 0.5, 1.0),
    Failure("the other region is lost", "region without the primary", 2, 0.5, 0.5),
    Failure("the PostgreSQL primary dies", "PostgreSQL primary", 6, 0.0, 1.0),
    Failure("a bucket is away", "bucket of a region for 30 s", 6, 0.5, 0.5),
    Failure("the link is cut for ten minutes", "link cut for 60 s", 12, 0.0, 0.5, stored_s=600),
    Failure("both at once: a mistake, a defect, a certificate that has run out", "", 1, 1.0, 1.0, 1800, 1800),
)


@dataclass(frozen=True)
class Year:
    """Seconds of a whole year's requests that a failure costs, for what is served and what is stored."""

    failure: Failure
    served_s: float
    stored_s: float


def add_up(recovery: Mapping[str, tuple[float | None, float | None]]) -> list[Year]:
    """Return what each failure costs; `recovery` has, by drill, the seconds until served and stored are back.

    Where a drill has none, the failure's own are taken.
    """
    years = []
    for one in FAILURES:
        served, stored = recovery.get(one.row, (None, None))
        served_s = one.served_s or served or 0.0
        stored_s = one.stored_s or stored or 0.0
        years.append(Year(one, one.per_year * one.served_share * served_s, one.per_year * one.stored_share * stored_s))
    return years


def availability(lost_s: float) -> float:
    """Return the share of a year that is not lost."""
    return 1 - lost_s / YEAR_S


def render_year(years: list[Year]) -> str:
    """Return the arithmetic as a Markdown table."""
    lines = ["| failure | a year | chat and embeddings lose | what is stored loses |", "|---|---|---|---|"]
    for one in years:
        lines.append(f"| {one.failure.name} | {one.failure.per_year:g} | {one.served_s:.0f} s | {one.stored_s:.0f} s |")
    served, stored = sum(one.served_s for one in years), sum(one.stored_s for one in years)
    lines.append(f"| **together** | | {served:.0f} s | {stored:.0f} s |")
    lines.append(f"| **availability** | | {availability(served):.4%} | {availability(stored):.4%} |")
    return "\n".join(lines) + "\n"
