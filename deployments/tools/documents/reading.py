"""Has documents read by a process that can be killed, and gives back chunks of their text."""

import asyncio
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from deployments.tools.documents.chunks import Chunk
from deployments.tools.documents.readers import InvalidFile, UnsupportedFile

_ROOT = str(Path(__file__).parents[3])
_CODE = "import sys; sys.path.insert(0, sys.argv[1]); from deployments.tools.documents.process import main; main()"
_TOO_SLOW = "The file takes too long to read. Split it, and upload the parts."
_TOO_COSTLY = "The file could not be read: it takes too much memory, or is made to do harm."


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """What reading one document may take."""

    memory_bytes: int = 1024 * 1024 * 1024
    time_s: float = 120.0


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """How long chunks are, how much of each the next one repeats, and how long their passages, in tokens."""

    size: int = 800
    overlap: int = 400
    passage: int = 800


async def read_chunks(content: bytes, filename: str, sizes: ChunkSizes, limits: ReadingLimits) -> list[Chunk]:
    """Return the chunks of a document's text.

    Raises:
        UnsupportedFile: it is of a kind that is not read.
        InvalidFile: it is damaged or protected by a password, holds no text, or takes more than it may.
    """
    head = {
        "filename": filename,
        "memory_bytes": limits.memory_bytes,
        "time_s": math.ceil(limits.time_s) + 1,
        "size_tokens": sizes.size,
        "overlap_tokens": sizes.overlap,
        "passage_tokens": sizes.passage,
    }
    answer = await asyncio.to_thread(_run, json.dumps(head).encode() + b"\n" + content, limits.time_s)
    kind, told = answer[:1], answer[1:]
    if kind == b"U":
        raise UnsupportedFile(told.decode())
    if kind == b"I":
        raise InvalidFile(told.decode())
    return await asyncio.to_thread(_chunks_of, told)


def _chunks_of(told: bytes) -> list[Chunk]:
    return [Chunk(text, starts) for text, starts in json.loads(told)]


def _run(given: bytes, time_s: float) -> bytes:
    """Return what the process answers; both ways go through memory, so that neither side waits for the other."""
    source, sink = os.memfd_create("document"), os.memfd_create("chunks")
    try:
        with os.fdopen(os.dup(source), "wb") as file:
            file.write(given)
        os.lseek(source, 0, os.SEEK_SET)
        # Of the environment nothing: it may hold secrets, and a parser that is broken into has no use for them.
        process = subprocess.Popen(  # noqa: S603 - the program is this one.
            [sys.executable, "-P", "-c", _CODE, _ROOT],
            stdin=source,
            stdout=sink,
            stderr=subprocess.DEVNULL,
            env={"LANG": "C.UTF-8"},
        )
        try:
            status = process.wait(time_s)
        except subprocess.TimeoutExpired:
            raise InvalidFile(_TOO_SLOW) from None
        finally:
            process.kill()
            process.wait()
        if status != 0:
            raise InvalidFile(_TOO_COSTLY)
        os.lseek(sink, 0, os.SEEK_SET)
        with os.fdopen(os.dup(sink), "rb") as file:
            return file.read()
    finally:
        os.close(source)
        os.close(sink)
