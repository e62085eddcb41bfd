"""Something is killed at random again and again, while clients ask and a batch runs: who is answered at the first try?

python -m tests.tools.drills --chaos MINUTES [--lines 20000] [--seed 1]
"""

import asyncio
import random
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.tools.drills.actions import Scene, kill
from tests.tools.drills.exchange import Exchange
from tests.tools.drills.judge import Bounds, Wrong, count_wrongs, how_it_failed, judge
from tests.tools.drills.rounds import Stage

EVERY_S = 10.0
PROCESSES = (
    "ServeController",
    "ProxyActor",
    "HAProxy",
    "front's agent",
    "gatekeeper",
    "coordinator",
    "EngineCore",
    "model replica",
    "ingress replica",
    "dashboard agent",
    "runtime environment agent",
)


@dataclass
class Chaos:
    """What a run has shown. `answered` counts requests whose answer began; `whole` those that also ended well.

    `faults` are those beside requests that failed.
    """

    minutes: float
    killed: dict[str, int]
    requests: int
    answered: int
    whole: int
    wrongs: dict[str, int]
    ways_to_fail: dict[str, int]
    batch: str
    faults: list[str] = field(default_factory=list)

    @property
    def availability(self) -> float:
        """The share of requests that were answered at the first try."""
        return self.answered / self.requests if self.requests else 0.0

    def render(self) -> str:
        """Return the run as text."""
        lines = [
            f"{self.minutes:g} minutes, {sum(self.killed.values())} processes killed: {self.killed}",
            f"{self.requests} requests, {self.availability:.4%} answered at the first try, {self.whole} whole",
            f"faults: {self.wrongs or 'none'}",
            f"batch: {self.batch}",
            *(f"    {num} x {way}" for way, num in self.ways_to_fail.items()),
            *(f"    {fault}" for fault in self.faults),
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the run as JSON."""
        return {**asdict(self), "availability": self.availability}


async def run_chaos(stage: Stage, minutes: float, num_lines: int, seed: int) -> Chaos:
    """Kill one process of a random role every ten seconds for so long; return what clients saw."""
    await stage.warm_up()
    key_id, load = await stage.begin("chaos")
    batch = await stage.begin_batch(num_lines)
    killed = await _kill_for(Scene(stage.cluster, load), minutes * 60, random.Random(seed))
    history = await load.finish()
    await stage.rest()
    charged = await stage.read(key_id, history)
    faults = judge(history, stage.answers, charged, Bounds())
    return Chaos(
        minutes=minutes,
        killed=dict(killed),
        requests=len(history),
        answered=sum(_is_answered(one) for one in history),
        whole=sum(one.is_complete for one in history),
        wrongs=dict(count_wrongs(faults)),
        ways_to_fail=dict(Counter(how_it_failed(one) for one in history if not one.is_complete).most_common(12)),
        batch=await batch.check(),
        faults=[
            f"request {fault.number}: {fault.wrong}: {fault.detail}"
            for fault in faults
            if fault.wrong is not Wrong.FAILED
        ][:50],
    )


async def _kill_for(scene: Scene, for_s: float, choice: random.Random) -> Counter[str]:
    killed: Counter[str] = Counter()
    await asyncio.sleep(EVERY_S)
    while scene.load.now < for_s:
        role = choice.choice(PROCESSES)
        try:
            await kill(role)(scene)
            killed[role] += 1
        except LookupError:  # It was killed before and is not back, or this service has none.
            continue
        await asyncio.sleep(EVERY_S)
    return killed


def _is_answered(exchange: Exchange) -> bool:
    return exchange.status == 200 and exchange.first_byte is not None
