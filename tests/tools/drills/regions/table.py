"""The drills of two regions as data: what dies, what is promised, and whether it is held today."""

from dataclasses import dataclass, field
from typing import Literal

from tests.tools.drills.regions.actions import (
    RegionAction,
    cut_link,
    drain,
    lose_bucket,
    lose_primary,
    lose_region,
    nothing,
)

MayFail = Literal["none", "lost region", "needs primary"]
"""Which calls may fail, after the SDK's own retries: none; streams that had begun in the region that died, and what
needs the primary until there is one; what needs the primary, near the region that is cut off from it."""


@dataclass(frozen=True)
class RegionPromise:
    """What must hold; None is no promise.

    `recovery_s` is how soon after the harm chat and embeddings are answered on both sides, at the 99th percentile of
    their waits; `primary_s` the same for what needs the database's primary. `limit_share` is how much of a limit is
    used in some minute although most of the traffic is near one region.
    """

    may_fail: MayFail = "none"
    recovery_s: float | None = None
    primary_s: float | None = None
    limit_share: float = 0.0


@dataclass(frozen=True)
class RegionDrill:
    """One row. `watch_s` is how long the load goes on after the harm; `has_limit` has one key asked for too much."""

    name: str
    action: RegionAction
    promise: RegionPromise = field(default_factory=RegionPromise)
    watch_s: float = 20.0
    has_limit: bool = False
    has_batch: bool = True
    is_held: bool = True


_LOST = RegionPromise("lost region", recovery_s=5.0, primary_s=30.0)

REGION_DRILLS: tuple[RegionDrill, ...] = (
    RegionDrill(
        "undisturbed",
        nothing,
        RegionPromise(limit_share=0.9),
        has_limit=True,
        has_batch=False,
        watch_s=65.0,
    ),
    RegionDrill("PostgreSQL primary", lose_primary, RegionPromise(recovery_s=1.0, primary_s=6.0), watch_s=30.0),
    RegionDrill("bucket of a region for 30 s", lose_bucket(30), RegionPromise(recovery_s=1.0), watch_s=45.0),
    RegionDrill("link cut for 60 s", cut_link(60), RegionPromise("needs primary"), watch_s=90.0, has_limit=True),
    RegionDrill(
        "link cut for 60 s, and the gatekeeper that had lent",
        cut_link(60, kills_lender=True),
        RegionPromise("needs primary"),
        watch_s=90.0,
        has_limit=True,
        has_batch=False,
    ),
    RegionDrill("region with the primary", lose_region(has_primary=True, away_s=60), _LOST, watch_s=80.0),
    RegionDrill("region without the primary", lose_region(has_primary=False, away_s=40), _LOST, watch_s=60.0),
    RegionDrill("nothing: a region is drained", drain(15), watch_s=60.0),
    RegionDrill("nothing: a region is upgraded", drain(5, is_upgraded=True), watch_s=60.0),
)
