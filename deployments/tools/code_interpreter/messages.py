"""The messages about containers between the ingress and the replica that holds them, and their errors.

ContainerError
├── ContainerGone        it has ended: idle for too long, over a limit, deleted, or its replica went away
├── ContainerFileMissing there is no such file in it
├── ContainerRefused     the operation on its files is not possible
└── InterpreterAway      no container can be created: all places are taken, or no replica answers
    └── InterpreterOff   no machine of the service can build a sandbox
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from deployments.channel.client import Address

Source = Literal["user", "assistant"]
CallStatus = Literal["ok", "error", "interrupted", "died"]
Place = Address
"""Where the replica that holds a container listens."""


class ContainerError(Exception):
    """An operation on a container failed; `message` is a sentence for the client."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ContainerGone(ContainerError):
    """The container has ended, and with it everything in it."""


class ContainerFileMissing(ContainerError):
    """The container has no such file."""


class ContainerRefused(ContainerError):
    """The operation on the container's files is not possible."""


class InterpreterAway(ContainerError):
    """No container can be created at the moment."""


class InterpreterOff(InterpreterAway):
    """No sandbox can be built, for the given reason, until the operator has mended it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.message = (
            f"The code interpreter is off: {reason}. Retrying does not help. Ask the operator of this service to fix "
            "it; for the operator, 'manta doctor' says more."
        )


CODES: dict[str, type[ContainerError]] = {
    "container_gone": ContainerGone,
    "container_file_missing": ContainerFileMissing,
    "container_refused": ContainerRefused,
    "interpreter_off": InterpreterOff,
}
"""The errors by their codes on the side channel; any other error is an `InterpreterAway`."""


@dataclass(frozen=True, slots=True)
class ContainerFile:
    """A file in a container; `path` is below its work folder, `created_at` in Unix seconds."""

    file_id: str
    path: str
    num_bytes: int
    created_at: float
    source: Source


@dataclass(frozen=True, slots=True)
class CodeRun:
    """The result of a call: its output, its figures (names and PNG bytes), and the files that it wrote.

    `reason` says why it was interrupted or ended, None if it was not.
    """

    status: CallStatus
    logs: str
    reason: str | None = None
    images: list[tuple[str, bytes]] = field(default_factory=list)
    files: list[ContainerFile] = field(default_factory=list)


def file_to_message(file: ContainerFile) -> list[Any]:
    """Return a file as a JSON array."""
    return [file.file_id, file.path, file.num_bytes, file.created_at, file.source]


def file_of(message: list[Any]) -> ContainerFile:
    """Return the file that `file_to_message` wrote."""
    return ContainerFile(*message)
