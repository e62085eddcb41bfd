"""Rounds: a drill under load, judged. Each round has a key of its own, so that what it was charged can be added up."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace

import httpx2

from deployments.state.config import StateConfig
from tests.tools.drills.actions import Scene, until_roles_are_back
from tests.tools.drills.asks import ModelAsks, ScriptedAsks
from tests.tools.drills.batches import RunningBatch
from tests.tools.drills.cluster import Cluster
from tests.tools.drills.exchange import Exchange
from tests.tools.drills.judge import (
    Bounds,
    Charged,
    Fault,
    Wrong,
    answered_ids,
    count_wrongs,
    has_failed,
    how_it_failed,
    judge,
)
from tests.tools.drills.ledger import Ledger
from tests.tools.drills.load import Door, Load
from tests.tools.drills.roles import ROLES
from tests.tools.drills.table import UNDISTURBED, Drill, undisturbed

LAST_MOMENTS_S = 5.0
"""So long may the processes of a node outlive its raylet."""
WARM_S = 4.0
"""Before the harm: as long as a stream takes, so that every client is amid something."""
SPREADS = 4
NEWCOMER_AFTER_S = 4.0
CLEAN_END_S = {"begun": 1.0, "ray": 3.0, "node": 5.0}
"""So soon must a stream end whose ingress has died: by itself, with its node's Ray, or with its node, which ends no
connection."""
DYING_S = {"ray": 2.0}
"""So long do a node's processes go on after its raylet."""


@dataclass
class Played:
    """A round that is over: all that a judge needs."""

    drill: Drill
    history: list[Exchange]
    answers: dict[str, dict[str, str]]
    charged: Charged
    scene: Scene
    back_s: float | None
    rest_s: float | None
    """How long after the load's end the service was at rest again, None where it never was."""
    unrest: str
    """What was not yet at rest, where it never was."""
    replaced: int
    """How many replicas are others than before."""
    problem: str | None = None
    """What kept the harm from being done, or was wrong beside the load."""
    batch: str = ""
    """What became of the batch that ran meanwhile, "" where none did; see `batches.check_batch`."""

    def longest_wait_s(self) -> dict[str, float]:
        """Return the longest wait of a request that was answered, by kind."""
        waits: dict[str, float] = {}
        for exchange in self.history:
            if exchange.is_complete:
                waits[exchange.kind] = max(waits.get(exchange.kind, 0.0), exchange.longest_wait_s)
        return waits


@dataclass
class Verdict:
    """What a round has shown, for the table and for the record."""

    name: str
    setting: str
    is_held: bool
    requests: int
    failed: int
    excused: int
    longest_wait_s: dict[str, float]
    undisturbed_wait_s: dict[str, float]
    back_s: float | None
    rest_s: float | None
    wrongs: dict[str, int]
    ways_to_fail: dict[str, int]
    faults: list[str] = field(default_factory=list)

    @property
    def is_green(self) -> bool:
        """Whether the promise was kept."""
        return not self.wrongs


class Stage:
    """A cluster, and the rounds that are played on it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        config = cluster.config()["applications"][0]["args"]["state"]
        self._ledger = Ledger(cluster.stores.database_url, StateConfig.model_validate(config))
        self._asks = ModelAsks() if cluster.engine.name == "vllm" else ScriptedAsks()

    @property
    def _doors(self) -> list[Door]:
        return [Door(node.name, self.cluster.url_of(node)) for node in self.cluster.doors]

    async def is_ready(self) -> bool:
        """Return whether a round can begin: the service is at rest, with replicas on every node that serves.

        What a node that went has left to the others is spread again.
        """
        try:
            for _ in range(SPREADS):
                await asyncio.to_thread(self.cluster.until_at_rest)
                if await asyncio.to_thread(self.cluster.is_spread):
                    return True
                await asyncio.to_thread(self.cluster.spread)
        except TimeoutError as error:
            print(f"The next round has a new cluster: {error}", flush=True)
        return False

    async def play(self, drill: Drill) -> Played:
        """Play one round: load, harm, load, and all that is written down about it."""
        before = replicas_of(self.cluster)
        batch = await self.begin_batch(drill.batch_lines) if drill.batch_lines else None
        key_id, load = await self.begin("drill")
        scene = Scene(self.cluster, load)
        back_s, problem = None, None
        await asyncio.sleep(WARM_S)
        coming_back = asyncio.create_task(until_roles_are_back(scene, drill.watch_s))
        newcomer = asyncio.create_task(self._ask_with_new_key(scene)) if drill.has_newcomer else None
        try:
            ends_at = load.now + drill.watch_s
            await drill.action(scene)
            await asyncio.sleep(max(0.0, ends_at - load.now))
            back_s = await coming_back
        except (LookupError, RuntimeError, AssertionError) as error:
            problem = f"{type(error).__name__}: {error}"
            coming_back.cancel()
        if newcomer is not None:
            problem = await newcomer or problem
        history = await load.finish()
        rest_s, unrest = await self.rest()
        said = await batch.check() if batch is not None else ""
        self._learn(drill, history)
        gone = before - replicas_of(self.cluster)
        await self.is_ready()  # What a killed ingress has written down is handed over by the next one on its node.
        charged = await self.read(key_id, history)
        if drill.needs_former and drill.name == UNDISTURBED:
            charged = replace(charged, usage_tokens=None)  # It keeps usage in another table.
        return Played(drill, history, self.answers, charged, scene, back_s, rest_s, unrest, len(gone), problem, said)

    async def begin(self, account: str) -> tuple[str, Load]:
        """Put load on the service with a new key; return the key's id and the load."""
        key_id, secret = await self._ledger.issue_key(account)
        return key_id, Load(self._doors, secret, self._asks.next)

    async def begin_batch(self, num_lines: int) -> RunningBatch:
        """Submit a batch of `num_lines`."""
        secret = await self.issue("batch")
        return await asyncio.to_thread(RunningBatch, f"{self.url}/v1", secret, num_lines)

    async def issue(self, account: str) -> str:
        """Return the secret of a new key."""
        return (await self._ledger.issue_key(account))[1]

    async def read(self, key_id: str, history: list[Exchange]) -> Charged:
        """Return what is written down about a key's requests, once all of them are."""
        return await self._ledger.read(key_id, answered_ids(history))

    async def _ask_with_new_key(self, scene: Scene) -> str:
        """Return what is wrong with the answer to a key that was made after the harm."""
        await asyncio.sleep(NEWCOMER_AFTER_S)
        secret = await self.issue("newcomer")
        door = next(one for one in self._doors if one.node not in scene.nodes)
        body, headers = self._asks.next("whole", 0).body, {"authorization": f"Bearer {secret}"}
        try:
            async with httpx2.AsyncClient(timeout=30) as http:
                answer = await http.post(f"{door.url}/v1/chat/completions", json=body, headers=headers)
        except httpx2.TransportError as error:
            return f"a new key: {type(error).__name__}"
        return "" if answer.status_code == 200 else f"a new key: {answer.status_code}, {answer.text[:200]}"

    async def rest(self) -> tuple[float | None, str]:
        """Return how many seconds it took until the service was at rest; None, and why, if it does not come to it."""
        try:
            return await asyncio.to_thread(self.cluster.until_at_rest), ""
        except TimeoutError as error:
            return None, str(error)

    @property
    def answers(self) -> dict[str, dict[str, str]]:
        """What is to be answered, by the name of the prompt."""
        return self._asks.answers

    @property
    def url(self) -> str:
        """The address of the service on the last node that serves."""
        return self._doors[-1].url

    def _learn(self, drill: Drill, history: list[Exchange]) -> None:
        """Take what vLLM says in the first undisturbed round for what it has to say in all later ones."""
        if isinstance(self._asks, ModelAsks) and drill.name == UNDISTURBED:
            for one in history:
                if one.is_complete:
                    self.answers.setdefault(one.prompt, dict(one.parts))

    async def warm_up(self) -> None:
        """Ask for everything once: what a service does at its first requests is no part of a round."""
        await self.play(undisturbed(0, "scripted"))


def replicas_of(cluster: Cluster) -> set[int]:
    """Return the process ids of every replica."""
    is_replica = lambda line: ROLES["model replica"](line) or ROLES["ingress replica"](line)  # noqa: E731
    return {process.pid for _, process in cluster.processes(is_replica)}


def verdict_of(played: Played, baseline: dict[str, float]) -> Verdict:
    """Judge a round; `baseline` has the longest waits of the undisturbed rounds by kind."""
    drill, scene = played.drill, played.scene
    extra = drill.promise.extra_wait_s
    waits = {kind: wait + extra for kind, wait in baseline.items()} if extra is not None else {}
    bounds = Bounds(lambda one: may_fail(drill.promise.may_fail, one, scene), limit_of(drill, scene), waits)
    faults = [*judge(played.history, played.answers, played.charged, bounds), *judge_service(played)]
    failed = [one for one in played.history if has_failed(one)]
    return Verdict(
        name=drill.name,
        setting=drill.setting,
        is_held=drill.is_held,
        requests=len(played.history),
        failed=len(failed),
        excused=sum(bounds.may_fail(one) for one in failed),
        longest_wait_s=played.longest_wait_s(),
        undisturbed_wait_s=dict(baseline),
        back_s=played.back_s if scene.roles_before else None,
        rest_s=played.rest_s,
        wrongs=dict(count_wrongs(faults)),
        ways_to_fail=dict(Counter(how_it_failed(one) for one in failed if one.ended is not None).most_common(6)),
        faults=[f"harm at {scene.at:.1f} s"] * bool(faults)
        + [f"{fault.number}: {fault.wrong}: {fault.detail}" for fault in faults[:20]],
    )


def judge_service(played: Played) -> list[Fault]:
    """Return what is wrong with the service after the harm, whatever clients saw."""
    promise, faults = played.drill.promise, []
    if played.problem is not None:
        faults.append(Fault(Wrong.NOT_DONE, None, played.problem))
    if played.unrest:
        faults.append(Fault(Wrong.NOT_BACK, None, played.unrest))
    if played.batch and not played.batch.startswith("exact"):
        faults.append(Fault(Wrong.BATCH, None, played.batch))
    if promise.back_s is not None and (played.back_s is None or played.back_s > promise.back_s):
        faults.append(Fault(Wrong.NOT_BACK, None, f"{played.back_s} s; {promise.back_s} s are promised"))
    if promise.keeps_replicas and played.replaced:
        faults.append(Fault(Wrong.REPLACED, None, f"{played.replaced} replicas"))
    return faults


def may_fail(which: str, exchange: Exchange, scene: Scene) -> bool:
    """Return whether a promise lets an exchange fail; see `table.MayFail`."""
    if which == "only node":
        return exchange.status == 503 or exchange.started <= scene.at + LAST_MOMENTS_S
    dead_at = max(scene.at, scene.gone_at) + DYING_S.get(which, 0.0)
    if exchange.started > dead_at:
        return which == "node" and exchange.door in scene.nodes
    begun = exchange.first_byte is not None and exchange.first_byte <= dead_at
    ended_at = exchange.ended if exchange.ended is not None else float("inf")
    has_ended = ended_at <= scene.at + CLEAN_END_S.get(which, 0.0)
    begun_and_ended = begun and exchange.kind == "stream" and has_ended
    match which:
        case "connections":
            return exchange.port in scene.ports
        case "begun" | "ray":
            return begun_and_ended
        case "node":
            return exchange.door in scene.nodes or begun_and_ended
    return False


def limit_of(drill: Drill, scene: Scene) -> int | None:
    """Return how many requests may fail at most: as many as the killed ingress had connections."""
    return scene.num_connections if drill.promise.may_fail == "begun" else None
