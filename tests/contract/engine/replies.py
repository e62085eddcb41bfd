"""Where the runners write their answers in tests."""

import asyncio

from deployments.models.contract.errors import EngineError


class Collected:
    """A reply that keeps what it is given."""

    def __init__(self):
        self.pieces: list[bytes] = []
        self.summary: dict | None = None
        self.first = asyncio.Event()

    def write(self, piece):
        self.pieces.append(piece)
        self.first.set()

    def end(self, summary):
        self.summary = summary

    def fail(self, error: EngineError):
        raise AssertionError(error)
