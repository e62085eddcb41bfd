"""A PostgreSQL server that is far away: a proxy that carries each byte after a delay, and counts the trips."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sqlalchemy.engine import make_url


class FarServer:
    """What a proxy has carried. `num_trips` counts how often a client spoke that had been spoken to before.

    Every way takes `one_way_s`, which may be changed at any time. While `link` is cleared nothing is carried; it comes
    later, as over a network that loses packets.
    """

    def __init__(self, port: int, one_way_s: float) -> None:
        self.num_trips = 0
        self.num_connections = 0
        self.link = asyncio.Event()
        self.link.set()
        self.one_way_s = one_way_s
        self._port = port
        self._carrying: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to its end."""
        self.num_connections += 1
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, far_writer]
        is_clients_turn = True

        async def there(data: bytes) -> None:
            nonlocal is_clients_turn
            if data and is_clients_turn:
                self.num_trips += 1
                is_clients_turn = False
            await self._send(far_writer, data)

        async def back(data: bytes) -> None:
            nonlocal is_clients_turn
            is_clients_turn = True
            await self._send(writer, data)

        for source, carried in ((reader, there), (far_reader, back)):
            task = asyncio.create_task(self._pump(source, carried))
            self._carrying.add(task)
            task.add_done_callback(self._carrying.discard)

    async def _pump(self, source, carried) -> None:
        data = b"-"
        while data:
            try:
                data = await source.read(65536)
            except ConnectionError:
                data = b""
            await asyncio.sleep(self.one_way_s)
            await self.link.wait()
            await carried(data)

    @staticmethod
    async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
        with suppress(ConnectionError):
            if data:
                writer.write(data)
                await writer.drain()
            else:
                writer.close()

    async def close(self) -> None:
        """Carry nothing any more."""
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)


@asynccontextmanager
async def far_away(url: str, one_way_s: float = 0.0) -> AsyncIterator[tuple[str, FarServer]]:
    """Yield the URL of a database as it is seen from far away, and the count of its trips."""
    parsed = make_url(url)
    far = FarServer(parsed.port or 5432, one_way_s)
    proxy = await asyncio.start_server(far.carry, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    try:
        yield parsed.set(host="127.0.0.1", port=port).render_as_string(hide_password=False), far
    finally:
        proxy.close()
        await far.close()
