"""HAProxy's runtime socket: the real one, and one that answers whatever it likes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from serve_app.front.addresses import Address
from serve_app.front.rendering import EMPTY, LAST_RESORT, MAIN, OTHER_WEIGHT
from serve_app.front.runtime import Runtime, RuntimeFailed
from tests.contract.front.running import running_front

HEADER = b"# pxname,svname,scur,status,weight,lastchg,check_status,addr\n"


@pytest.fixture
async def socket_path() -> AsyncIterator[Path]:
    with TemporaryDirectory(prefix="mr-", dir="/tmp") as folder:
        yield Path(folder) / "socket"


async def answering(path: Path, answer: bytes, *, ends: bool = True) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        with suppress(ConnectionError):
            writer.write(answer)
            await writer.drain()
            if not ends:
                await reader.read()
            writer.close()
            await writer.wait_closed()

    return await asyncio.start_unix_server(serve, path)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff\xfe\x00garbage",
        b"Unknown command\n",
        HEADER,
        HEADER + b"ingress,s1\n",
        HEADER + b"ingress,s1,x,UP,1,1,L7OK,127.0.0.1:1\n",
        HEADER + b"ingress,s1,0,UP,1,1,L7OK,nowhere\n",
        b"x" * 20_000_000,
    ],
)
async def test_garbage_is_a_failure_and_no_table(socket_path: Path, answer: bytes) -> None:
    async with await answering(socket_path, answer):
        with pytest.raises(RuntimeFailed):
            await asyncio.to_thread(Runtime(socket_path).slots, MAIN)
        with pytest.raises(RuntimeFailed):
            await asyncio.to_thread(Runtime(socket_path).pid)


async def test_silence_is_a_failure_after_a_while(socket_path: Path) -> None:
    async with await answering(socket_path, HEADER, ends=False):
        with pytest.raises(RuntimeFailed, match="TimeoutError"):
            await asyncio.to_thread(Runtime(socket_path, timeout_s=0.2).slots, MAIN)


async def test_missing_socket_is_a_failure(socket_path: Path) -> None:
    with pytest.raises(RuntimeFailed, match="FileNotFoundError"):
        Runtime(socket_path).pid()


async def test_refused_command_is_a_failure(socket_path: Path) -> None:
    async with await answering(socket_path, b"\nNo such server.\n"):
        with pytest.raises(RuntimeFailed, match="No such server"):
            await asyncio.to_thread(Runtime(socket_path).send, ["set server x/y state maint"])


async def test_slots_are_read_and_changed_in_a_real_process() -> None:
    async with running_front() as front:
        with front.without_agent():  # It would change the table meanwhile.
            runtime = Runtime(front.settings.socket_path(0))
            assert runtime.pid() == front.pid_of(0)
            for backend in (MAIN, LAST_RESORT):
                slots = runtime.slots(backend)
                assert len(slots) == front.settings.num_slots
                assert all(slot.is_empty and slot.address == EMPTY and not slot.is_up for slot in slots)
            server = f"{MAIN}/s3"
            runtime.send([f"set server {server} addr ::1 port 7", f"set server {server} weight {OTHER_WEIGHT}"])
            runtime.send([f"enable health {server}", f"set server {server} state ready"])
            slot = runtime.slots(MAIN)[2]
            assert (slot.name, slot.address, slot.weight) == ("s3", Address("::1", 7), OTHER_WEIGHT)
            assert not slot.is_empty
            with pytest.raises(RuntimeFailed):
                runtime.send(["set server nothing/s1 state maint"])
            with pytest.raises(RuntimeFailed):
                runtime.slots("nothing")
