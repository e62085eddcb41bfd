"""Puts load on a server: clients that each send the next request when the last one is answered."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator

from tests.tools.bench.client import Connection, Request, Sample
from tests.tools.bench.prompts import Target


class ClosedLoop:
    """A fixed number of clients that work through the same requests together, however many those are."""

    def __init__(self, target: Target, requests: Iterable[Request], clients: int) -> None:
        self.samples: list[Sample] = []
        self._target = target
        self._clients = clients
        self._waiting: Iterator[Request] = iter(requests)
        self._running = 0
        self._reconnects: set[asyncio.Task[None]] = set()
        self._done: asyncio.Future[None] | None = None

    async def run(self) -> list[Sample]:
        """Send every request once and return what was seen, in the order of the answers."""
        self._done = asyncio.get_running_loop().create_future()
        connections = await connect(self._target, self._clients, self._on_done)
        self._running = len(connections)
        for connection in connections:
            self._send_next(connection)
        await self._done
        for connection in connections:
            connection.close()
        return self.samples

    def _on_done(self, connection: Connection, sample: Sample) -> None:
        self.samples.append(sample)
        self._send_next(connection)

    def _send_next(self, connection: Connection) -> None:
        request = next(self._waiting, None)
        if request is None:
            self._running -= 1
            if self._running == 0 and self._done is not None and not self._done.done():
                self._done.set_result(None)
        elif connection.is_open:
            connection.send(request)
        else:
            task = asyncio.get_running_loop().create_task(self._reconnect(connection, request))
            self._reconnects.add(task)
            task.add_done_callback(self._reconnects.discard)

    async def _reconnect(self, connection: Connection, request: Request) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: connection, self._target.host, self._target.port)
        except OSError as error:
            now = time.perf_counter()
            self._on_done(connection, Sample(started=now, ended=now, error=f"no connection: {error}"))
            return
        connection.send(request)


async def connect(target: Target, num: int, on_done: Callable[[Connection, Sample], None]) -> list[Connection]:
    """Return `num` open connections.

    Raises:
        OSError: the server does not accept them.
    """
    loop = asyncio.get_running_loop()
    connections = [Connection(on_done) for _ in range(num)]
    for connection in connections:
        await loop.create_connection(lambda c=connection: c, target.host, target.port)  # type: ignore[misc]
    return connections
