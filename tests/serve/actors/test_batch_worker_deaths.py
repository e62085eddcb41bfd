"""A line that kills its worker whenever it runs, on a real Ray cluster: the coordinator, its workers and Ray Data."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil
import pytest

from batch.actor import start_coordinator
from batch.config import BatchConfig, Intervals
from batch.setup import BatchSetup
from batch.stores import open_stores
from batch.worker import LineWorker
from deployments.detached import stop_detached
from deployments.models.contract.engine import EngineRequest
from deployments.state.config import StateConfig, resolve_state
from serve_app.operations.registry import create_operations
from serve_app.operations.routing import cache_salts
from tests.contract.batches.runs import Runs
from tests.contract.http.answers import MODEL, answer
from tests.twins.engine import MemoryDirectory, Script, ScriptedEngine, model_card
from tests.waiting import eventually

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]

NAME = "batches-under-test"
POISON = 9
_ENDS_S = 480.0


@dataclass(frozen=True)
class PoisonedSetup(BatchSetup):
    """Workers over real stores and a scripted engine, which ends the process when it is asked the poisonous question.

    Each death is noted in the file `deaths`: what the process was, as it calls itself.
    """

    deaths: str = ""

    async def create_worker(self) -> LineWorker:
        engine = ScriptedEngine(model_card(MODEL), self._answer)
        operations = create_operations(MemoryDirectory([engine]), cache_salts(b"salt"))
        return LineWorker(
            await self.open_stores(), operations.by_path(), self.config, intervals=Intervals(commit_s=0.05)
        )

    def _answer(self, request: EngineRequest) -> Script:
        if orjson.loads(request.body)["messages"][0]["content"] == f"Question {POISON}":
            with Path(self.deaths).open("a") as deaths:
                deaths.write(psutil.Process().cmdline()[0] + "\n")
            os.kill(os.getpid(), signal.SIGKILL)
        return answer(request)


@pytest.fixture
async def poisoned(ray_cluster: None, tmp_path: Path) -> AsyncIterator[tuple[Runs, Path]]:
    """A batch's stores with a coordinator on the cluster, and where deaths are noted."""
    state = resolve_state(StateConfig(state_dir=tmp_path / "state"), {})
    stores = await open_stores(state, max_unfinished=10)
    config = BatchConfig(small_batch_lines=4, max_lines_in_flight=4)
    deaths = tmp_path / "deaths"
    setup = PoisonedSetup(state, config, models=(), deaths=str(deaths))
    await asyncio.to_thread(start_coordinator, setup, NAME)
    yield Runs(state.database_url, state.object_store.url, stores), deaths
    await asyncio.to_thread(stop_detached, NAME, 10.0)
    await stores.close()


async def test_a_line_that_kills_every_worker_is_given_up_and_all_others_are_answered(
    poisoned: tuple[Runs, Path],
) -> None:
    runs, deaths = poisoned
    batch_id = await runs.submit()

    async def has_ended() -> bool:
        return (await runs.stores.batches.find("acct", batch_id)).state.has_ended

    await eventually(has_ended, _ENDS_S)
    await runs.check(batch_id, given_up=[POISON])
    victims = deaths.read_text().splitlines()
    # Twice with others, first in the Ray Data job that runs all but the first four lines; then three times alone.
    assert victims[0].startswith("ray::MapWorker")
    assert [victim.partition(".")[0] for victim in victims[2:]] == ["ray::WorkerProcess"] * 3
