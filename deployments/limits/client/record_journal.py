"""The records that an ingress replica has not handed over yet, in files on its node, so that its death loses none.

`ShippedRequestLog` writes them, and `orphaned_records` reads those of dead replicas. A record reaches the operating
system before the last byte of its answer is sent; it is not forced to disk, which only a power cut would need. A
replica locks its files while it lives: a process that gets the lock may hand the records over. Some are in the database
already, which knows each request by its id.
"""

import fcntl
import logging
import os
import secrets
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import orjson

from deployments.state.usage.record import RequestRecord
from deployments.waiting import worth_logging

logger = logging.getLogger(__name__)

SUFFIX = ".records"
_SEGMENT_BYTES = 256 * 1024
row_of = attrgetter(*RequestRecord.__slots__)


@dataclass(slots=True)
class _Segment:
    """A file of the journal; `last` is the highest number of a record in it."""

    path: Path
    descriptor: int
    size: int = 0
    last: int = -1

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self.descriptor)


def open_journal(directory: Path) -> "RecordJournal | None":
    """Return a new journal; None, and a log line, if the directory cannot be written."""
    try:
        return RecordJournal(directory)
    except OSError as error:
        logger.warning(
            "%s cannot be written (%s): if this replica is killed, its last half second is not counted.",
            directory,
            error.strerror,
        )
        return None


class RecordJournal:
    """The journal of one replica, in `directory`. Writing never raises: a full disk only removes the protection."""

    def __init__(self, directory: Path) -> None:
        """Open the first file.

        Raises:
            OSError: the directory cannot be written.
        """
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory = directory
        self._name = secrets.token_hex(8)
        self._num_segments = 0
        self._num_failures = 0
        self._ahead: dict[str, tuple[_Segment, bytes]] = {}
        self._segments = deque([self._open()])

    def write_ahead(self, record: RequestRecord) -> None:
        """Write a record that has no number yet; `write` gives it one."""
        line = orjson.dumps(row_of(record)) + b"\n"
        self._ahead[record.request_id] = (self._append(line), line)

    def write(self, number: int, record: RequestRecord) -> None:
        """Write a record, unless it was written ahead."""
        ahead = self._ahead.pop(record.request_id, None)
        segment = ahead[0] if ahead is not None else self._append(orjson.dumps(row_of(record)) + b"\n")
        segment.last = number

    def forget_below(self, number: int) -> None:
        """Delete the files whose records have all been handed over: those with lower numbers."""
        while len(self._segments) > 1 and self._segments[0].last < number:
            self._segments.popleft().delete()

    def close(self, *, is_handed_over: bool) -> None:
        """Release the lock; delete the files if all their records are handed over."""
        for segment in self._segments:
            if is_handed_over:
                segment.delete()
            else:
                os.close(segment.descriptor)
        self._segments.clear()

    def _append(self, line: bytes) -> _Segment:
        segment = self._segments[-1]
        try:
            if segment.size >= _SEGMENT_BYTES:
                segment = self._begin_next()
            segment.size += os.write(segment.descriptor, line)
        except OSError as error:
            self._num_failures += 1
            if worth_logging(self._num_failures):
                logger.warning("Request records cannot be written to %s: %s", self._directory, error.strerror)
        return segment

    def _begin_next(self) -> _Segment:
        """Return a new file with the records that wait for their number: the old file may be deleted without them."""
        segment = self._open()
        self._segments.append(segment)
        for request_id, (_, line) in self._ahead.items():
            segment.size += os.write(segment.descriptor, line)
            self._ahead[request_id] = (segment, line)
        return segment

    def _open(self) -> _Segment:
        """Return a new file that gets its name only after it is locked."""
        path = self._directory / f"{self._name}.{self._num_segments}{SUFFIX}"
        self._num_segments += 1
        unlocked = path.with_suffix(".new")
        descriptor = os.open(unlocked, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        unlocked.rename(path)
        return _Segment(path, descriptor)


@dataclass(slots=True)
class OrphanedFile:
    """A file of a dead replica, locked for this process, and its records."""

    path: Path
    descriptor: int
    records: list[RequestRecord]

    def delete(self) -> None:
        """Delete the file; its records have been handed over."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock."""
        os.close(self.descriptor)


def take_orphaned_files(directory: Path) -> Iterator[OrphanedFile]:
    """Yield the files of dead replicas; the caller closes each. Files that cannot be read are left out, and logged."""
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:  # Another replica has handed it over just now.
            continue
        except OSError as error:
            logger.warning("The request records in %s cannot be read: %s", path, error.strerror)
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # Its replica lives, or another replica has it.
            os.close(descriptor)
            continue
        if not os.fstat(descriptor).st_nlink:
            os.close(descriptor)
            continue
        yield OrphanedFile(path, descriptor, list(_read_lines(path.read_bytes())))


def _read_lines(data: bytes) -> Iterator[RequestRecord]:
    for line in data.splitlines():
        try:
            yield RequestRecord(*orjson.loads(line))
        except (orjson.JSONDecodeError, TypeError):
            logger.warning("A request record that was cut off is left out.")
