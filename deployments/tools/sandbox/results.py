"""Results of a sandbox as values, and its two errors."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Status = Literal["ok", "error", "interrupted", "died"]


class SandboxDied(Exception):
    """The sandbox has ended, and everything in it is gone; `reason` says why, for the caller."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SandboxRefused(Exception):
    """The operation on the files of a sandbox is not possible; says why, for the caller."""


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
