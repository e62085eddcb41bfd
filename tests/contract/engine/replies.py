"""Where the runners write their answers in tests."""

import asyncio

from deployments.models.contract.errors import EngineError
from deployments.models.contract.steps import Written, unpack


class Collected:
    """A reply that keeps what it is given, the time in the queue apart."""

    def __init__(self):
        self.pieces: list[bytes] = []
        self.notes: list[bytes] = []
        self.writes: list[bytes] = []
        self.last = b""
        self.summary: dict | None = None
        self.queued_s: float | None = None
        self.first = asyncio.Event()

    def write(self, piece, note=b""):
        if piece:
            self.pieces.append(piece)
        self.notes.append(note)
        self.writes.append(piece)
        self.first.set()

    def end(self, summary, last=b""):
        self.queued_s = summary.pop("queued_s", None)  # No two answers wait for the same time.
        self.summary, self.last = summary, last
        if last:
            self.pieces.append(last)

    def numbers(self, num_writes: int | None = None) -> list[int]:
        """Return what the notes of the first writes say, for the header of a request that continues."""
        return unpack(b"".join(self.notes[:num_writes]))

    @property
    def groups(self) -> list[list[int]]:
        """The tokens of each step of the only choice."""
        return Written(self.numbers()).groups_of(0)

    def fail(self, error: EngineError):
        raise AssertionError(error)


def assert_goes_on(whole: Collected, rest: Collected, cut: int) -> None:
    """Check that an answer that was cut after that many writes goes on as the whole does, on whatever engine."""
    assert rest.notes == whole.notes[cut:]
    assert rest.summary == whole.summary
