"""The drills as data: who is killed, what is promised, and whether today's service keeps it.

A row that does not hold yet says so (`is_held`): it is run, its numbers are printed, and a run does not fail by it.
Once it holds, the run says that too, and the row is changed here.
"""

from dataclasses import dataclass, replace
from typing import Literal

from tests.tools.drills.actions import (
    Action,
    cut_worker,
    deploy_change,
    kill,
    lose_head,
    lose_worker,
    move_on,
    nothing,
    replace_worker,
)

MayFail = Literal["none", "connections", "begun", "ray", "node", "only node"]
"""Which requests may fail: none; those whose connection was the killed process's; streams that had begun on the killed
ingress, which end within a second; those that began on an ingress before the Ray of its node was gone; those through a
node that went, and streams that had begun on its ingress; where it is the only node, those of its last moments, and
those that are refused until it is back."""


@dataclass(frozen=True)
class Promise:
    """What must hold, whatever the drill does.

    `extra_wait_s` is how much longer than in the undisturbed rounds a request may wait, None being no promise.
    `back_s` is how soon as many processes run as before, None being no promise.
    """

    may_fail: MayFail = "none"
    extra_wait_s: float | None = 1.0
    back_s: float | None = None
    keeps_replicas: bool = False


@dataclass(frozen=True)
class Drill:
    """One row of the table.

    `num_workers` is the cluster that it needs: of two and more workers, the head has the control processes alone, else
    it serves too. `watch_s` is how long the load goes on after the harm has begun. A batch of `batch_lines` lines runs
    meanwhile. `has_newcomer` says that a client asks with a key created after the harm. One that `needs_former`
    begins with the version before this one.
    """

    name: str
    action: Action
    promise: Promise
    num_workers: int = 2
    engine: Literal["scripted", "vllm"] = "scripted"
    watch_s: float = 12.0
    is_held: bool = True
    is_quick: bool = False
    needs_redis: bool = False
    batch_lines: int = 0
    has_newcomer: bool = False
    needs_former: bool = False

    @property
    def setting(self) -> str:
        """The nodes and the engine, in words; and whether it begins with the version before."""
        nodes = {0: "one node", 1: "two nodes"}.get(self.num_workers, f"head + {self.num_workers}")
        return f"{nodes}, {self.engine}{', version before' if self.needs_former else ''}"


UNDISTURBED = "undisturbed"
NEXT_VERSION = "nothing: the next version takes over"
_NOTHING_FAILS = Promise()
_STAYS = Promise(keeps_replicas=True)
_GATEKEEPER = Promise(extra_wait_s=1.5)
_HAPROXY = Promise(may_fail="connections", back_s=1.0)
_INGRESS = Promise(may_fail="begun")
_RAY = Promise(may_fail="ray")
_NO_BREAK = Promise(extra_wait_s=3.0)
_NODE = Promise(may_fail="node", extra_wait_s=3.3)
"""Keepalive gives up a connection to a silent node three seconds after its last packet. The rest is for the way to the
other replica."""
_ONLY_NODE = Promise(may_fail="only node", extra_wait_s=None)
"""A raylet ends when one of its agents does, and all of Ray on its node with it."""
_HEAD = Promise(extra_wait_s=1.0)


def undisturbed(num_workers: int, engine: Literal["scripted", "vllm"], *, needs_former: bool = False) -> Drill:
    """Return the round with which the others of a cluster are compared."""
    return Drill(UNDISTURBED, nothing, _NOTHING_FAILS, num_workers, engine, needs_former=needs_former)


def _away(name: str, action: Action, promise: Promise, watch_s: float, *, is_held: bool = True) -> Drill:
    """Return a row in which a node is away: a batch runs meanwhile, and a client comes with a new key."""
    drill = Drill(name, action, promise, watch_s=watch_s, is_held=is_held, needs_redis=promise is _HEAD)
    return replace(drill, batch_lines=1500, has_newcomer=True)


DRILLS: tuple[Drill, ...] = (
    Drill("ServeController", kill("ServeController"), _STAYS, num_workers=0, is_quick=True),
    Drill("ProxyActor", kill("ProxyActor"), _NOTHING_FAILS, num_workers=0),
    Drill("HAProxy", kill("HAProxy"), _HAPROXY, num_workers=0, watch_s=40),
    Drill("gatekeeper", kill("gatekeeper"), _GATEKEEPER, num_workers=0, is_quick=True),
    Drill("coordinator", kill("coordinator"), _NOTHING_FAILS, num_workers=0, is_quick=True),
    Drill("dashboard agent", kill("dashboard agent"), _ONLY_NODE, num_workers=0, watch_s=60),
    Drill("EngineCore", kill("EngineCore"), _NO_BREAK, num_workers=0),
    Drill("model replica", kill("model replica"), _NO_BREAK, num_workers=0),
    Drill("ingress replica", kill("ingress replica"), _INGRESS, num_workers=0),
    Drill(NEXT_VERSION, move_on, _NO_BREAK, num_workers=0, watch_s=60, needs_former=True),
    Drill("ServeController", kill("ServeController"), _STAYS),
    Drill("ProxyActor", kill("ProxyActor"), _NOTHING_FAILS),
    Drill("HAProxy", kill("HAProxy"), _HAPROXY, watch_s=40),
    Drill("front's agent", kill("front's agent"), _NOTHING_FAILS),
    Drill("gatekeeper", kill("gatekeeper"), _GATEKEEPER),
    Drill("coordinator", kill("coordinator"), _NOTHING_FAILS),
    Drill("dashboard agent", kill("dashboard agent"), _RAY, watch_s=40),
    Drill("runtime environment agent", kill("runtime environment agent"), _RAY, watch_s=40),
    Drill("EngineCore", kill("EngineCore"), _NO_BREAK),
    Drill("model replica", kill("model replica"), _NO_BREAK),
    Drill("ingress replica", kill("ingress replica"), _INGRESS),
    Drill("raylet of a worker", kill("raylet"), _RAY, watch_s=40),
    _away("worker node", lose_worker(back_after_s=30), _NODE, 45),
    _away("worker node cut off for 60 s", cut_worker(60), _NODE, 75),
    Drill("gcs_server", kill("gcs_server"), _HEAD, watch_s=30, needs_redis=True),
    _away("head node for 60 s", lose_head(60), _HEAD, 90),
    _away("head node, replaced at another address", lose_head(5, is_replaced=True), _HEAD, 60),
    Drill("nothing: a new configuration is deployed", deploy_change, _NOTHING_FAILS, watch_s=40),
    Drill("nothing: a worker is drained and replaced", replace_worker, _NOTHING_FAILS, watch_s=60),
    Drill("ServeController", kill("ServeController"), _STAYS, num_workers=1),
    Drill("worker node", lose_worker(back_after_s=30), _NODE, num_workers=1, watch_s=45),
    Drill("head node for 60 s", lose_head(60), _NODE, num_workers=1, watch_s=90, needs_redis=True),
    Drill("EngineCore", kill("EngineCore"), _NO_BREAK, engine="vllm", watch_s=20),
    Drill("model replica", kill("model replica"), _NO_BREAK, engine="vllm", watch_s=20),
    Drill("worker node", lose_worker(back_after_s=30), _NODE, engine="vllm", watch_s=45),
)
