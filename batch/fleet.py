"""Where lines run: the contract between who gives them out and the workers."""

from collections.abc import Sequence
from typing import Protocol

from batch.lines import Place
from batch.worker import Job, LineWorker


class FleetDown(Exception):
    """No worker can be had right now; no line is to blame."""


class Fleet(Protocol):
    """Workers. Kept by `LocalFleet` and by `batch.ray_fleet.RayFleet`."""

    async def run(self, job: Job, places: Sequence[Place]) -> None:
        """Return when the lines have committed outcomes, or the batch is to be stopped, or a worker died over them.

        Raises:
            Fenced: somebody else works on the batch now.
            FleetDown: no worker could be had.
        """
        ...

    async def run_alone(self, job: Job, place: Place) -> None:
        """Run one line in a process that runs nothing else, so that it alone is to blame; returns as `run` does."""
        ...

    async def forget(self, batch_id: str) -> None:
        """Let go what was kept for a batch."""
        ...

    async def close(self) -> None:
        """Let the workers go."""
        ...


class LocalFleet:
    """One worker, in this process."""

    def __init__(self, worker: LineWorker) -> None:
        self._worker = worker

    async def run(self, job: Job, places: Sequence[Place]) -> None:
        """Run the lines here."""
        await self._worker.run(job, places)

    async def run_alone(self, job: Job, place: Place) -> None:
        """Run the line here: there is no other process."""
        await self._worker.run(job, [place])

    async def forget(self, batch_id: str) -> None:
        """Do nothing: nothing is kept."""

    async def close(self) -> None:
        """Do nothing: there is nothing to let go."""
