"""Rounds on two regions: a drill under load from both sides, and all that is looked for afterwards."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median

from openai import APIError, AsyncOpenAI, AuthenticationError

from deployments.state.config import StateConfig
from tests.tools.drills.batches import RunningBatch
from tests.tools.drills.judge import Charged, Fault, Wrong, answered_ids, count_wrongs, has_failed, how_it_failed
from tests.tools.drills.ledger import Ledger
from tests.tools.drills.regions.actions import SEEN_S, RegionScene
from tests.tools.drills.regions.balancer import url_near
from tests.tools.drills.regions.calls import Call, RegionLoad, Size, Turn
from tests.tools.drills.regions.ground import Ground
from tests.tools.drills.regions.judge import (
    NEEDS_PRIMARY,
    Kept,
    judge_calls,
    judge_kept,
    judge_limit,
    longest_wait_s,
    served_lost_s,
    stored_lost_s,
)
from tests.tools.drills.regions.rates import Hammer
from tests.tools.drills.regions.table import RegionDrill

WARM_S = 8.0
FILE = b"What was stored one moment before.\n" * 100
KNOWN_S = 10.0
"""A new key is known in both regions after so long."""
AT_ONCE = 8
"""How many turns are looked up at the same time."""
SERVED = frozenset({"stream", "whole", "embedding"})


@dataclass
class RegionRound:
    """A round that is over, with what it has shown; times in seconds, None where there is none."""

    name: str
    is_held: bool
    requests: int
    failed: int
    excused: int
    ways_to_fail: dict[str, int]
    served_p99_s: float | None
    stored_p99_s: float | None
    served_lost_s: float
    """For so long were chat and embeddings as good as away, the mean over all clients; the next the same for turns."""
    stored_lost_s: float
    first_token_s: dict[str, float]
    """The median from a call to its first token, by side."""
    stored_s: dict[str, float]
    """The median from a turn's last token to its completion event, by side."""
    notes: dict[str, float]
    batch: str
    limit: str
    wrongs: dict[str, int]
    faults: list[str] = field(default_factory=list)

    @property
    def is_green(self) -> bool:
        """Whether the promise was kept."""
        return not self.wrongs


@dataclass
class Before:
    """What was acknowledged right before the harm, and is looked for after it."""

    file_id: str
    key: str
    revoked: str


class RegionStage:
    """Two regions, and the rounds that are played on them."""

    def __init__(self, ground: Ground, size: Size, batch_lines: int) -> None:
        self.ground = ground
        self._size = size
        self._batch_lines = batch_lines
        os.environ.update(ground.us.references)
        state = ground.us.config()["applications"][0]["args"]["state"]
        self._ledger = Ledger(ground.database.resolved_url, StateConfig.model_validate(state))

    async def play(self, drill: RegionDrill) -> RegionRound:
        """Play one round: load from both sides, harm, load, and all that was acknowledged looked for."""
        ground = self.ground
        batch = await self._begin_batch() if drill.has_batch else None
        key_id, secret = await self._ledger.issue_key("regions")
        limit_key = await self._ledger.issue_key("limited", requests_per_minute=60) if drill.has_limit else None
        revoked_id, revoked = await self._ledger.issue_key("revoked")
        for used in (revoked, secret, *(limit_key or ())[1:]):
            await self._use(used)
        load = RegionLoad(secret, self._size)
        primary = await asyncio.to_thread(ground.primary)
        sides = primary.name, ground.other(primary).name
        hammer = Hammer(limit_key[1], 60, sides) if limit_key else None
        scene = RegionScene(ground, load, hammer, primary=primary.name)
        await asyncio.sleep(WARM_S)
        before = Before(await self._store_file(secret), secret, revoked)
        await self._ledger.revoke_key(revoked_id)
        await asyncio.sleep(1.0)
        problem = await self._harm(drill, scene)
        history = await load.finish()
        if hammer is not None:
            await hammer.finish()
        problem += await self._rest()
        said = await batch.check() if batch is not None else ""
        charged = await self._ledger.read(key_id, answered_ids(history))
        kept = await self._look(before, load.turns)
        return verdict(drill, scene, history, load, charged, kept, said, self._size, problem)

    async def _harm(self, drill: RegionDrill, scene: RegionScene) -> list[str]:
        ends_at = scene.load.now + drill.watch_s
        try:
            await drill.action(scene)
        except (LookupError, RuntimeError, AssertionError, TimeoutError) as error:
            return [f"{type(error).__name__}: {error}"[:400]]
        finally:
            await asyncio.sleep(max(0.0, ends_at - scene.load.now))
            scene.until = scene.until or scene.load.now
        return []

    async def _rest(self) -> list[str]:
        try:
            await asyncio.to_thread(self.ground.until_at_rest)
        except TimeoutError as error:
            return [str(error)[:400]]
        return []

    async def _begin_batch(self) -> RunningBatch:
        _, secret = await self._ledger.issue_key("batch")
        await self._use(secret)
        return await asyncio.to_thread(RunningBatch, url_near("us"), secret, self._batch_lines)

    async def _use(self, secret: str) -> None:
        """Have both regions know a key, which one that reads from its standby learns a moment later.

        Raises:
            AuthenticationError: one still does not know it after `KNOWN_S`.
        """
        deadline = time.monotonic() + KNOWN_S
        for region in self.ground.regions:
            async with AsyncOpenAI(base_url=url_near(region), api_key=secret) as client:
                while True:
                    try:
                        await client.models.list()
                        break
                    except AuthenticationError:
                        if time.monotonic() > deadline:
                            raise
                    await asyncio.sleep(0.5)

    async def _store_file(self, secret: str) -> str:
        async with AsyncOpenAI(base_url=url_near("us"), api_key=secret) as client:
            return (await client.files.create(file=("before.txt", FILE), purpose="user_data")).id

    async def _look(self, before: Before, turns: Sequence[Turn]) -> Kept:
        """Return what each region, asked itself, has of what was acknowledged."""
        found: dict[str, dict[str, tuple[str, str | None]]] = {}
        problems: list[str] = []
        for region in self.ground.regions.values():
            url = f"{region.place.url}/v1"
            async with AsyncOpenAI(base_url=url, api_key=before.key) as client:
                found[region.name] = await _read_turns(client, turns)
                problems += await _check_file(client, before.file_id, region.name)
            async with AsyncOpenAI(base_url=url, api_key=before.revoked, max_retries=0) as client:
                problems += await _check_revoked(client, region.name)
        return Kept(found, problems)


async def _read_turns(client: AsyncOpenAI, turns: Sequence[Turn]) -> dict[str, tuple[str, str | None]]:
    """Return the text of each turn that is found, and the id of the one before it."""
    found = {}
    room = asyncio.Semaphore(AT_ONCE)

    async def read(turn: Turn) -> None:
        async with room:
            with suppress(APIError):
                stored = await client.responses.retrieve(turn.response_id)
                found[turn.response_id] = (stored.output_text, stored.previous_response_id)

    await asyncio.gather(*map(read, turns))
    return found


async def _check_file(client: AsyncOpenAI, file_id: str, region: str) -> list[str]:
    try:
        content = (await client.files.content(file_id)).content
    except APIError as error:
        return [f"file {file_id} in {region}: {error}"[:200]]
    return [] if content == FILE else [f"file {file_id} in {region} has {len(content)} other bytes"]


async def _check_revoked(client: AsyncOpenAI, region: str) -> list[str]:
    try:
        await client.models.list()
    except APIError as error:
        return [] if getattr(error, "status_code", None) == 401 else [f"a revoked key in {region}: {error}"[:200]]
    return [f"a revoked key is answered in {region}"]


def may_fail(which: str, call: Call, scene: RegionScene) -> bool:
    """Return whether a promise lets a call fail; see `table.MayFail`."""
    if which == "none" or call.ended is None:
        return False
    needs_primary = call.kind in NEEDS_PRIMARY
    if which == "needs primary":
        is_far = call.door != scene.primary
        return is_far and needs_primary and call.started < scene.until + SEEN_S and call.ended >= scene.at
    was_there = scene.lost is not None and scene.lost.name == (call.regions or [call.door])[-1]
    began_there = was_there and call.started <= scene.at and (call.kind == "stream" or needs_primary)
    promoted_at = scene.at + scene.notes.get("promoted", 0.0)
    return began_there or (needs_primary and call.started <= promoted_at and call.ended >= scene.at)


def verdict(
    drill: RegionDrill,
    scene: RegionScene,
    history: Sequence[Call],
    load: RegionLoad,
    charged: Charged,
    kept: Kept,
    batch: str,
    size: Size,
    problems: Sequence[str],
) -> RegionRound:
    """Judge a round."""
    promise = drill.promise
    excuses = lambda call: may_fail(promise.may_fail, call, scene)  # noqa: E731
    faults = [*judge_calls(history, load.answers, charged, excuses), *judge_kept(load.turns, kept)]
    faults += [Fault(Wrong.NOT_DONE, None, problem) for problem in problems]
    if batch and not batch.startswith("exact"):
        faults.append(Fault(Wrong.BATCH, None, batch))
    served = longest_wait_s(history, scene.at, 0.99, SERVED)
    stored = longest_wait_s(history, scene.at, 0.99, NEEDS_PRIMARY)
    for seen, promised, what in ((served, promise.recovery_s, "chat"), (stored, promise.primary_s, "turns")):
        if promised is not None and (seen is None or seen > promised + 1.0):
            faults.append(Fault(Wrong.SLOW, None, f"{what}: {seen} s at the 99th percentile, {promised} s promised"))
    if scene.hammer is not None:
        faults += judge_limit(scene.hammer.admitted, scene.hammer.per_minute, promise.limit_share)
    failed = [call for call in history if has_failed(call)]
    return RegionRound(
        name=drill.name,
        is_held=drill.is_held,
        requests=len(history),
        failed=len(failed),
        excused=sum(excuses(call) for call in failed),
        ways_to_fail=dict(Counter(f"{call.kind}: {how_it_failed(call)}" for call in failed).most_common(8)),
        served_p99_s=served,
        stored_p99_s=stored,
        served_lost_s=round(served_lost_s(history, size.num_clients * len(scene.ground.regions)), 1),
        stored_lost_s=round(stored_lost_s(history, size.turn_every_s), 1),
        first_token_s=_medians(history, "first_token_s", "stream"),
        stored_s=_medians(history, "stored_s", "turn"),
        notes={**scene.notes, "harm": scene.at},
        batch=batch,
        limit=scene.hammer.describe() if scene.hammer else "",
        wrongs=dict(count_wrongs(faults)),
        faults=[f"{fault.number}: {fault.wrong}: {fault.detail}" for fault in faults[:20]],
    )


def _medians(history: Sequence[Call], name: str, kind: str) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for call in history:
        if call.kind == kind and getattr(call, name) is not None:
            found.setdefault(call.door, []).append(getattr(call, name))
    return {side: round(median(values), 4) for side, values in found.items()}
