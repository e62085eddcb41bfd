"""Where lines run: the contract between who gives them out and the workers."""

from collections.abc import Sequence
from typing import Protocol

from batch.lines import Place
from batch.worker import Job, LineWorker


class FleetDown(Exception):
    """No worker can be had right now; no line is to blame."""


class Fleet(Protocol):
    """Workers. Kept by `LocalFleet` and by `batch.job.RayFleet`."""

    async def run(self, job: Job, places: Sequence[Place]) -> None:
        """Return when the lines have committed outcomes, or the batch is to be stopped, or a worker died over them.

        Raises:
            Fenced: somebody else works on the batch now.
            FleetDown: no worker could be had.
        """
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

    async def close(self) -> None:
        """Do nothing: there is nothing to let go."""
