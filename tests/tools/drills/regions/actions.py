"""What is done to two regions in a drill: an action returns once the harm is done, and undone where it is."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.tools.drills.actions import CHECK_S
from tests.tools.drills.cluster import until
from tests.tools.drills.nodes import end
from tests.tools.drills.regions.balancer import CHECK_EVERY_S, FALL
from tests.tools.drills.regions.calls import RegionLoad
from tests.tools.drills.regions.database import kill_postgres
from tests.tools.drills.regions.ground import Ground
from tests.tools.drills.regions.rates import Hammer
from tests.tools.drills.regions.region import Region
from tests.tools.drills.roles import find

SEEN_S = CHECK_EVERY_S * FALL + CHECK_S
"""So long after a region has died is it known to the load balancer."""
DRAINED_S = 60.0


@dataclass
class RegionScene:
    """Two regions under load, and what was done to them."""

    ground: Ground
    load: RegionLoad
    hammer: Hammer | None = None
    at: float = 0.0
    """When the harm was done, in seconds since the round began."""
    until: float = 0.0
    """When it was undone, or the end of the round."""
    lost: Region | None = None
    """The region that was lost."""
    primary: str = ""
    """The region that had the database's primary when the round began."""
    notes: dict[str, float] = field(default_factory=dict)
    """What was measured beside the load, in seconds."""


RegionAction = Callable[[RegionScene], Awaitable[None]]


async def nothing(scene: RegionScene) -> None:
    """Leave both regions in peace."""
    scene.at = scene.load.now


def lose_region(*, has_primary: bool, away_s: float) -> RegionAction:
    """Return what takes a region's power away, that of the primary or the other, and gives it back later."""

    async def act(scene: RegionScene) -> None:
        ground = scene.ground
        primary = await asyncio.to_thread(ground.primary)
        region = primary if has_primary else ground.other(primary)
        survivor = ground.other(region)
        scene.lost, scene.at = region, scene.load.now
        watch = asyncio.create_task(_until_primary(scene, survivor))
        await asyncio.to_thread(ground.lose, region)
        await asyncio.sleep(away_s)
        await watch
        scene.until = scene.load.now
        await asyncio.to_thread(ground.restore, region)
        scene.notes["back"] = await _until_back(scene)

    return act


async def lose_primary(scene: RegionScene) -> None:
    """Kill the database's primary, and nothing else of its region."""
    region = await asyncio.to_thread(scene.ground.primary)
    scene.at = scene.load.now
    await asyncio.to_thread(kill_postgres, region.node)
    await _until_primary(scene, scene.ground.other(region))


def lose_bucket(away_s: float) -> RegionAction:
    """Return what has the S3 server of the primary's region answer nothing, and answer again later."""

    async def act(scene: RegionScene) -> None:
        region = await asyncio.to_thread(scene.ground.primary)
        scene.at = scene.load.now
        await asyncio.to_thread(region.silence_bucket)
        await asyncio.sleep(away_s)
        scene.until = scene.load.now
        await asyncio.to_thread(region.wake_bucket)

    return act


def cut_link(for_s: float, *, kills_lender: bool = False) -> RegionAction:
    """Return what cuts the link between the regions; both live, and reach the witness and the clients.

    Where a limit is asked for near the primary, it then is near both. The gatekeeper of the other region, which has
    lent its share, may be killed as well.
    """

    async def act(scene: RegionScene) -> None:
        scene.at = scene.load.now
        await asyncio.to_thread(scene.ground.link.cut)
        if scene.hammer is not None:
            scene.hammer.press()
        if kills_lender:
            lender = scene.ground.other(scene.ground.regions[scene.primary])
            end([process for _, process in await asyncio.to_thread(find, lender, "gatekeeper")])
        await asyncio.sleep(for_s)
        scene.until = scene.load.now
        await asyncio.to_thread(scene.ground.link.heal)

    return act


def drain(for_s: float, *, is_upgraded: bool = False) -> RegionAction:
    """Return what drains the primary's region as an operator does, upgrades it meanwhile or not, and lets it return."""

    async def act(scene: RegionScene) -> None:
        region = await asyncio.to_thread(scene.ground.primary)
        scene.at = scene.load.now
        await asyncio.to_thread(region.manta, "regions", "drain", region.name, "--config", str(region.config_path))
        await asyncio.to_thread(until, region.is_left, DRAINED_S, f"{region.name} tells that it should be left")
        scene.notes["left"] = scene.load.now - scene.at
        if is_upgraded:
            await asyncio.to_thread(region.deploy, region.changed_config())
            await asyncio.to_thread(until, lambda: region.unrest() == "", 240, "the upgrade", region.unrest)
        await asyncio.sleep(for_s)
        await asyncio.to_thread(region.manta, "regions", "undrain", region.name, "--config", str(region.config_path))
        await asyncio.to_thread(until, lambda: not region.is_left(), DRAINED_S, f"{region.name} serves again")
        scene.until = scene.load.now

    return act


async def _until_primary(scene: RegionScene, region: Region, timeout_s: float = 60.0) -> None:
    """Note how long after the harm a region has the database's primary."""
    began = time.monotonic()
    while time.monotonic() - began < timeout_s:
        if await asyncio.to_thread(scene.ground.database.is_primary, region.node):
            scene.notes["promoted"] = scene.load.now - scene.at
            return
        await asyncio.sleep(0.2)


async def _until_back(scene: RegionScene) -> float:
    """Return how long after its return a region serves again, with its part of the database."""
    await asyncio.to_thread(scene.ground.until_at_rest)
    return scene.load.now - scene.until
