"""The gatekeeper's journal: one line for each change of the ledger since the last snapshot, in files on its node.

The ledger writes it and a restart reads it. A line reaches the operating system before the change is answered, so a
killed process loses none; it is not forced to disk, because a power cut also ends the requests that it would lose.
Segments are numbered; once a snapshot is saved, the segments before it are deleted.
"""

import os
import re
from pathlib import Path

from deployments.limits.ledger import Change
from deployments.limits.messages import Posting

_KINDS = {"requests": "r", "tokens": "t"}
_SEGMENT = re.compile(r"^([0-9a-f]{16,40})\.(\d+)$")


class FileJournal:
    """Implements `ledger.Journal`: journal `journal_id` in `directory`, which appends to its segment `segment`."""

    def __init__(self, directory: Path, journal_id: str, segment: int) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.journal_id = journal_id
        self.segment = segment
        self._directory = directory
        self._pending: list[str] = []
        self._descriptor = self._open()

    def note(self, change: Change) -> None:
        """Buffer a change until the next flush."""
        posting = change.posting
        kind = _KINDS[posting.dimension]
        self._pending.append(f"{kind} {change.number} {posting.key_id} {posting.at!r} {posting.amount}\n")

    def note_serial(self, client_id: str, serial: int) -> None:
        """Buffer the last applied serial of a client until the next flush."""
        self._pending.append(f"s {serial} {client_id}\n")

    def flush(self) -> None:
        """Write the buffer to the file, in one write."""
        if self._pending:
            data = "".join(self._pending).encode()
            self._pending.clear()
            os.write(self._descriptor, data)

    def rotate(self, serials: dict[str, int]) -> int:
        """Start the next segment with the serials of all clients; return its number."""
        self.flush()
        os.close(self._descriptor)
        self.segment += 1
        self._descriptor = self._open()
        for client_id, serial in serials.items():
            self.note_serial(client_id, serial)
        self.flush()
        return self.segment

    def drop_before(self, segment: int) -> None:
        """Delete this journal's older segments, and all of other journals."""
        for path in self._directory.iterdir():
            match = _SEGMENT.match(path.name)
            if match and (match[1] != self.journal_id or int(match[2]) < segment):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Flush, and close the file."""
        self.flush()
        os.close(self._descriptor)

    def _open(self) -> int:
        path = self._directory / f"{self.journal_id}.{self.segment}"
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


class Recorded:
    """The content of a journal from one segment on; `last_segment` is None if that segment is missing."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.serials: dict[str, int] = {}
        self.last_segment: int | None = None


def read_journal(directory: Path, journal_id: str, first_segment: int) -> Recorded:
    """Return the content of a journal from `first_segment` on. A line cut off by a crash is left out."""
    recorded = Recorded()
    if not (directory / f"{journal_id}.{first_segment}").exists():
        return recorded
    segment = first_segment
    while (path := directory / f"{journal_id}.{segment}").exists():
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                _read_line(line.split(), recorded)
        recorded.last_segment = segment
        segment += 1
    return recorded


def _read_line(words: list[str], recorded: Recorded) -> None:
    if words[0] == "s":
        recorded.serials[words[2]] = int(words[1])
        return
    dimension = "requests" if words[0] == "r" else "tokens"
    posting = Posting(words[2], dimension, float(words[3]), int(words[4]))  # type: ignore[arg-type]
    recorded.changes.append(Change(int(words[1]), posting))
