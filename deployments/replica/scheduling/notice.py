"""Word from a replica to its engine that an interactive request is on its way.

The engine is a process of its own, and gets a request some milliseconds after the replica has. A step with lines of a
batch that it begins meanwhile would have to end first. So the replica writes into memory that both see until when the
engine had better wait. Both read the same clock, `time.monotonic()`, in seconds.
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
    """The moment until which an interactive request may be on its way; one long past where none is."""

    def __init__(self, memory: SharedMemory | None = None) -> None:
        """Take the memory that is shared; without any, nobody else sees what is written."""
        self._memory = memory
        self._buffer = (memory and memory.buf) or memoryview(bytearray(_MOMENT.size))

    @property
    def until(self) -> float:
        """The moment, in seconds."""
        return float(_MOMENT.unpack_from(self._buffer)[0])

    @until.setter
    def until(self, moment: float) -> None:
        _MOMENT.pack_into(self._buffer, 0, moment)

    @classmethod
    @contextmanager
    def offer(cls) -> Iterator[Self]:
        """Yield a notice that processes started within the context find with `find`. It is good for longer."""
        memory = SharedMemory(create=True, size=_MOMENT.size)
        os.environ[_NAME] = memory.name
        try:
            yield cls(memory)
        finally:
            del os.environ[_NAME]
            memory.unlink()

    @classmethod
    def find(cls) -> Self:
        """Return what the process that started this one offers, or one that nobody writes to."""
        name = os.environ.get(_NAME)
        return cls(SharedMemory(name)) if name is not None else cls()
