"""What stands between a batch and its stores, and may be cut; and what the process says that runs the batch."""

import asyncio
import threading
from contextlib import suppress

from tests.contract.batches.runs import Process
from tests.listening import stop_listening
from tests.ports import free_port
from tests.waiting import eventually


class Relay:
    """A TCP relay to another port of this machine. It may be cut, and refuses who connects; or held, and is silent."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def start(self) -> None:
        """Listen, from the beginning or again."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def cut(self) -> None:
        """Close what is open and listen no more."""
        assert self._server is not None
        await stop_listening(self._server)
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()

    async def hold(self) -> None:
        """Take what comes, and pass nothing on."""
        self._flowing.clear()

    async def release(self) -> None:
        """Pass on what was held, and what comes."""
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, far_writer}
        await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
        self._writers -= {writer, far_writer}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(65_536):
                await self._flowing.wait()
                writer.write(piece)
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


class Watched:
    """A process, and what it writes to its error stream."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._told: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        with open(self.process.errors, closefd=False) as errors:
            for line in errors:
                self._told.append(line)

    def has_failed(self) -> bool:
        """Something was tried and failed; the process goes on."""
        assert self.process.status is None, self._told
        return any("failed" in line or "could not be claimed" in line for line in self._told)

    async def ended(self) -> None:
        """Return once the process has ended by itself."""
        await eventually(lambda: self.process.status is not None, 120)
        assert self.process.status == 0, self._told

    def remove(self) -> None:
        """End the process, if it has not ended."""
        self.process.remove()
        self._reading.join(timeout=30)
