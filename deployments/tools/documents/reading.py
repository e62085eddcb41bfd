"""Reads documents in bounded processes, and returns chunks of their text."""

import asyncio
import json
import math
from dataclasses import asdict, dataclass

from deployments.bounded_process import Bounds, ProcessFailed, ProcessTimedOut, run
from deployments.tools.documents.chunks import Chunk
from deployments.tools.documents.readers import InvalidFile, UnsupportedFile

_PROCESS = "deployments.tools.documents.chunks"
_MAX_OUTPUT_BYTES = 512 * 1024 * 1024
_TOO_SLOW = "The file takes too long to read. Split it, and upload the parts."
_TOO_COSTLY = "The file could not be read: it takes too much memory, or is made to do harm."


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """The limits for reading one document."""

    memory_bytes: int = 1024 * 1024 * 1024
    time_s: float = 120.0


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """The lengths of chunks, of the overlap of two chunks, and of passages, in tokens."""

    size: int = 800
    overlap: int = 400
    passage: int = 800


async def read_chunks(content: bytes, filename: str, sizes: ChunkSizes, limits: ReadingLimits) -> list[Chunk]:
    """Return the chunks of a document's text.

    Raises:
        UnsupportedFile: files of its kind are not read.
        InvalidFile: it is damaged or protected by a password, holds no text, or exceeds a limit.
    """
    head = {"filename": filename, **asdict(sizes)}
    # The timeout comes before the limit of CPU time, so that a slow document does not look like a hostile one.
    bounds = Bounds(math.ceil(limits.time_s) + 1, limits.time_s, limits.memory_bytes, _MAX_OUTPUT_BYTES)
    try:
        answer = await asyncio.to_thread(run, _PROCESS, json.dumps(head).encode() + b"\n" + content, bounds)
    except ProcessTimedOut:
        raise InvalidFile(_TOO_SLOW) from None
    except ProcessFailed:
        raise InvalidFile(_TOO_COSTLY) from None
    kind, payload = answer[:1], answer[1:]
    if kind == b"U":
        raise UnsupportedFile(payload.decode())
    if kind == b"I":
        raise InvalidFile(payload.decode())
    return await asyncio.to_thread(lambda: [Chunk(*one) for one in json.loads(payload)])
