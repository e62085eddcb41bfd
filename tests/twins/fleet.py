"""A fleet of batch workers without Ray."""

from collections.abc import Sequence

from batch.worker import ClaimedBatch, LineWorker
from serve_app.validation.batch_lines import Place


class LocalFleet:
    """One worker, in this process."""

    def __init__(self, worker: LineWorker) -> None:
        self._worker = worker

    async def run(self, batch: ClaimedBatch, places: Sequence[Place]) -> None:
        """Run the lines here."""
        await self._worker.run(batch, places)

    async def run_alone(self, batch: ClaimedBatch, place: Place) -> None:
        """Run the line here: there is no other process."""
        await self._worker.run(batch, [place])

    async def forget(self, batch_id: str) -> None:
        """Do nothing: no worker runs single lines."""

    async def close(self) -> None:
        """Do nothing: the worker belongs to this process."""
