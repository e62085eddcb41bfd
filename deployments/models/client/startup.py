"""Whether the models that are kept running have come up, as one process sees it: for its word on being ready."""

import asyncio
from collections.abc import Iterable
from typing import Protocol


class Starting(Protocol):
    """A model that may be starting; kept by `deployments.models.client.remote.RemoteEngine`."""

    async def wait_for_replica(self) -> None:
        """Return once there is a replica."""
        ...


class ModelStartup:
    """Which models have had a replica since this process began. What becomes of them later is not looked at.

    A process is ready with the first of them, not with the last: it answers for that one, and whoever asks for another
    waits for it or is told that it is starting. Where it had to be the last, a model that is added to a service that
    runs, or one that does not start, would take all the others out of service with it.
    """

    def __init__(self, engines: Iterable[Starting] = ()) -> None:
        """Take the models that are kept running; those that are scaled to zero wake up for a request."""
        self._engines = tuple(engines)
        self._num_started = 0
        self._waiting: list[asyncio.Task[None]] = []

    @property
    def is_ready(self) -> bool:
        """Whether there is a model that can answer, or none that is kept running."""
        return self._num_started > 0 or not self._engines

    @property
    def num_starting(self) -> int:
        """How many models have not had a replica yet."""
        return len(self._engines) - self._num_started

    def watch(self) -> None:
        """Begin to look, on the running loop."""
        self._waiting = [asyncio.create_task(self._wait(engine)) for engine in self._engines]

    async def _wait(self, engine: Starting) -> None:
        await engine.wait_for_replica()
        self._num_started += 1

    async def close(self) -> None:
        """Look no longer."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)
