"""Frames between the service and the interpreter in a sandbox, and their contents as values; text is made harmless.

Frames from the sandbox may hold anything, as code inside shares a process with the interpreter, which defines their
format (`interpreter`).
"""

import asyncio
import json
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from deployments.tools.sandbox.process import SandboxProcess

PIECE_BYTES = 1024 * 1024
GONE = "It has ended."
_LENGTHS = struct.Struct(">II")
_MAX_HEAD_BYTES = 1024 * 1024
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # Colours and cursor movements,
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # strings to the terminal, such as its title and the clipboard,
    r"|\x1b[ -/]*[0-~]",  # and the rest.
    re.DOTALL,
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_MAX_PATH_CHARS = 255
Status = Literal["ok", "error", "interrupted", "died"]


class SandboxDied(Exception):
    """The sandbox has ended with everything in it; `reason` is for the client."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SandboxRefused(Exception):
    """An operation on the files of a sandbox is not possible; the message is for the client."""


class WorkFile(NamedTuple):
    """A file in the work folder; `path` is relative to it."""

    path: str
    num_bytes: int
    changed_ns: int


@dataclass(slots=True)
class RunResult:
    """The result of a call: how it ended, its output, and the images (names and PNG bytes) of its figures."""

    status: Status = "ok"
    logs: str = ""
    images: list[tuple[str, bytes]] = field(default_factory=list)
    reason: str | None = None


class Frames:
    """Writes frames into a sandbox, and reads frames of bounded size from it."""

    def __init__(self, process: SandboxProcess, max_payload_bytes: int) -> None:
        self._process = process
        self._max_payload_bytes = max_payload_bytes

    async def read(self) -> tuple[dict[str, Any], bytes]:
        """Return the head and the payload of the next frame, or raise SandboxDied."""
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
        """Send a frame, or raise SandboxDied."""
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


def printable(text: str) -> str:
    """Return text without control sequences; a line keeps the part after its last carriage return."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", "\n".join(lines))


def is_safe_path(path: str) -> bool:
    """Return whether a relative path stays below its folder and has only printable characters."""
    parts = path.split("/")
    return (
        0 < len(path) <= _MAX_PATH_CHARS
        and path.isprintable()
        and "\\" not in path
        and all(part not in ("", ".", "..") for part in parts)
        and not any("\ud800" <= character <= "\udfff" for character in path)
    )
