"""Records that a dead ingress replica left on a node without one are handed over by a task of Ray on that node."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import ray
from ray import nodes

from deployments.limits.actor import stop_gatekeeper
from deployments.limits.client.record_journal import RecordJournal
from deployments.limits.orphaned_records import OrphanedNodes
from deployments.patience import Patience
from deployments.state.config import ResolvedState, StateConfig, resolve_state
from deployments.state.database.connection import connect
from deployments.state.usage.store import UsageStore
from tests.contract.state.records import record
from tests.patience import PATIENT
from tests.serve.actors.gatekeepers import answering_gatekeeper

pytestmark = pytest.mark.serve

NAME = "gatekeeper-of-left-records"
OWN = "10.0.0.1:30000"
NUM_RECORDS = 5


@dataclass
class Node:
    """The folder of records on the cluster's node, where no replica lives, and what is counted."""

    directory: Path
    usage: UsageStore
    state: ResolvedState

    def leave_records(self) -> None:
        journal = RecordJournal(self.directory)
        for number in range(NUM_RECORDS):
            journal.write(number, record(number, at=time.time()))
        journal.close(is_handed_over=False)

    def looker(self, own: str | None, patience: Patience = PATIENT) -> OrphanedNodes:
        async def living() -> list[str]:
            return [OWN, "10.0.0.2:30000"]

        return OrphanedNodes(self.directory, lambda: own, living, NAME, patience)

    async def num_counted(self) -> int:
        return sum(row.num_requests for row in await self.usage.by_day())


@pytest.fixture
async def node(ray_cluster: None, tmp_path: Path) -> AsyncIterator[Node]:
    state = resolve_state(StateConfig(state_dir=tmp_path), {})
    database = await connect(state.database_url)
    await answering_gatekeeper(state, NAME)
    node = Node(tmp_path / "records", UsageStore(database), state)
    node.leave_records()
    yield node
    await asyncio.to_thread(stop_gatekeeper, NAME)
    await database.close()


async def test_first_replica_has_them_handed_over_and_looks_once(node: Node) -> None:
    first = node.looker(OWN)
    assert await first.look() == NUM_RECORDS
    assert await node.num_counted() == NUM_RECORDS
    assert [*node.directory.iterdir()] == []
    node.leave_records()
    assert await first.look() == 0  # No replica was there meanwhile that could have left them.
    assert await node.looker(OWN).look() == NUM_RECORDS
    assert await node.num_counted() == NUM_RECORDS  # They are the same requests.


@pytest.mark.parametrize("own", ["10.0.0.2:30000", None], ids=["another replica", "a replica without an address"])
async def test_other_replicas_leave_them_to_the_first(node: Node, own: str | None) -> None:
    assert await node.looker(own).look() == 0
    assert await node.num_counted() == 0


async def test_node_that_fails_holds_nothing_up(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    (node.directory / "no-file.records").mkdir()
    monkeypatch.setattr(ray, "nodes", lambda: [dead_node(), *nodes()])
    assert await node.looker(OWN).look() == NUM_RECORDS


async def test_node_is_looked_at_again_when_nobody_took_its_records(node: Node) -> None:
    await asyncio.to_thread(stop_gatekeeper, NAME)
    first = node.looker(OWN, replace(PATIENT, hand_over_s=0.3))
    assert await first.look() == 0
    await answering_gatekeeper(node.state, NAME)
    first._patience = PATIENT
    assert await first.look() == NUM_RECORDS
    assert await node.num_counted() == NUM_RECORDS


def dead_node() -> dict[str, object]:
    """A node that has died since Ray was asked."""
    return {"NodeID": "00" * 28, "Alive": True, "Resources": {"CPU": 1.0}, "NodeManagerAddress": "10.0.0.3"}
