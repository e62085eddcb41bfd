"""Tells an engine that its replica is preparing an interactive request; `preparing` writes it, `scheduler` reads it.

The engine is a process of its own, and gets a request some milliseconds after the replica. Without a notice it might
start a step with batch lines meanwhile, which would delay the request. So the replica writes a time into shared memory,
and until then the engine starts no such step. Both read the same clock, `time.monotonic()`, in seconds.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory
from typing import Self

_NAME = "MANTA_NOTICE"
_MOMENT = struct.Struct("d")


class Notice:
    """The time until which an interactive request may arrive; long past if none is expected."""

    def __init__(self, memory: SharedMemory | None = None) -> None:
        """Use the shared memory; without any, no other process sees the time."""
        self._memory = memory
        self._buffer = (memory and memory.buf) or memoryview(bytearray(_MOMENT.size))

    @property
    def until(self) -> float:
        """The time, in seconds."""
        return float(_MOMENT.unpack_from(self._buffer)[0])

    @until.setter
    def until(self, moment: float) -> None:
        _MOMENT.pack_into(self._buffer, 0, moment)

    @classmethod
    @contextmanager
    def offer(cls) -> Iterator[Self]:
        """Yield a notice that processes started within the context can `find`; it stays valid after the context."""
        memory = SharedMemory(create=True, size=_MOMENT.size)
        os.environ[_NAME] = memory.name
        try:
            yield cls(memory)
        finally:
            del os.environ[_NAME]
            memory.unlink()

    @classmethod
    def find(cls) -> Self:
        """Return the notice that the parent process offers, or one that is never written to."""
        name = os.environ.get(_NAME)
        return cls(SharedMemory(name)) if name is not None else cls()
