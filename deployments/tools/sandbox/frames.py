"""Frames between the service and the interpreter in a sandbox; `interpreter` defines their format.

Frames from the sandbox may hold anything: code inside shares a process with the interpreter.
"""

import asyncio
import json
import os
import struct
from collections.abc import Callable
from typing import Any

from deployments.tools.sandbox.process import SandboxProcess
from deployments.tools.sandbox.results import SandboxDied

PIECE_BYTES = 1024 * 1024
GONE = "It has ended."
_LENGTHS = struct.Struct(">II")
_MAX_HEAD_BYTES = 1024 * 1024


class Frames:
    """Writes frames into a sandbox, and reads frames of bounded size from it."""

    def __init__(self, process: SandboxProcess, max_payload_bytes: int) -> None:
        self._process = process
        self._max_payload_bytes = max_payload_bytes

    async def read(self) -> tuple[dict[str, Any], bytes]:
        """Return the head and the payload of the next frame.

        Raises:
            SandboxDied: the sandbox has ended, or what comes is no frame.
        """
        head_length, payload_length = _LENGTHS.unpack(await self._exactly(_LENGTHS.size))
        if head_length > _MAX_HEAD_BYTES or payload_length > self._max_payload_bytes:
            raise SandboxDied("It answered more than it may.")
        raw = await self._exactly(head_length)
        payload = await self._exactly(payload_length)
        try:
            head = json.loads(raw)
        except (ValueError, RecursionError):
            head = None
        if not isinstance(head, dict):
            raise SandboxDied("It answered what cannot be read.")
        return head, payload

    async def _exactly(self, num_bytes: int) -> bytes:
        loop = asyncio.get_running_loop()
        pieces = bytearray()
        while len(pieces) < num_bytes:
            try:
                piece = os.read(self._process.answers, min(num_bytes - len(pieces), PIECE_BYTES))
            except BlockingIOError:
                await _wait_for(loop.add_reader, loop.remove_reader, self._process.answers)
                continue
            except OSError:
                piece = b""
            if not piece:
                raise SandboxDied(GONE)
            pieces += piece
        return bytes(pieces)

    async def write(self, head: dict[str, Any], payload: bytes) -> None:
        """Send a frame.

        Raises:
            SandboxDied: the sandbox has ended.
        """
        raw = json.dumps(head).encode()
        left = memoryview(_LENGTHS.pack(len(raw), len(payload)) + raw + payload)
        loop = asyncio.get_running_loop()
        while left:
            try:
                left = left[os.write(self._process.requests, left) :]
            except BlockingIOError:
                await _wait_for(loop.add_writer, loop.remove_writer, self._process.requests)
            except OSError:
                raise SandboxDied(GONE) from None


async def _wait_for(add: Callable[..., Any], remove: Callable[[int], Any], descriptor: int) -> None:
    ready = asyncio.Event()
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)
