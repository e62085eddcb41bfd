"""Whether the models that are kept running have started, as one process sees it; decides its readiness."""

import asyncio
from collections.abc import Iterable
from typing import Protocol


class Starting(Protocol):
    """A model that may be starting; kept by `deployments.models.client.remote.RemoteEngine`."""

    async def wait_for_replica(self) -> None:
        """Return once there is a replica."""
        ...


class ModelStartup:
    """Which models have had a replica since this process began; whether they still do is not checked.

    A process is ready when the first model is: it answers for that one, and requests for another wait for it or get a
    503. If all had to be ready, a new model in a running service, or one that does not start, would take the others out
    of service.
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
        """Start watching, on the running loop."""
        self._waiting = [asyncio.create_task(self._wait(engine)) for engine in self._engines]

    async def _wait(self, engine: Starting) -> None:
        await engine.wait_for_replica()
        self._num_started += 1

    async def close(self) -> None:
        """Stop watching."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)
