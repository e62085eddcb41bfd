"""The contract between `BatchRun`, which gives lines out, and the workers that run them."""

from collections.abc import Sequence
from typing import Protocol

from batch.worker import ClaimedBatch
from serve_app.validation.batch_lines import Place


class FleetDown(Exception):
    """No worker can be started now; no line is at fault."""


class Fleet(Protocol):
    """Workers. `batch.ray_fleet.RayFleet` implements it; a twin in `tests` has one in its own process."""

    async def run(self, batch: ClaimedBatch, places: Sequence[Place]) -> None:
        """Return when the lines have committed outcomes, the batch must stop, or a worker died over them.

        Raises:
            Fenced: another coordinator has claimed the batch.
            FleetDown: no worker could be started.
        """
        ...

    async def run_alone(self, batch: ClaimedBatch, place: Place) -> None:
        """Run one line in a process that runs no other, as `run` does: if the process dies, the line is at fault."""
        ...

    async def forget(self, batch_id: str) -> None:
        """Stop the workers that ran single lines of a batch."""
        ...

    async def close(self) -> None:
        """Stop all workers."""
        ...
