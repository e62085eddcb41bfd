"""The gatekeeper's journal on its node, and the restart of the gatekeeper from snapshot and journal.

The journal has a line for each change of the ledger since the last snapshot. A line reaches the operating system before
the change is answered, so a killed process loses none; it is not forced to disk, because a power cut also ends the
requests that it would lose. Segments are numbered; a saved snapshot deletes the segments before it.
"""

import os
import re
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from typing_extensions import override

from deployments.limits.core import GatekeeperCore, Keyring
from deployments.limits.ledger import Change, Journal, Ledger
from deployments.limits.messages import Posting
from deployments.limits.regions.core import RegionCore
from deployments.limits.regions.ledger import RegionLedger
from deployments.limits.snapshots import Snapshot
from deployments.limits.window import WINDOW_S, Share
from deployments.state.config import ResolvedState
from deployments.state.database.clock import SteadyClock

_KINDS = {"requests": "r", "tokens": "t"}
_SEGMENT = re.compile(r"^([0-9a-f]{16,40})\.(\d+)$")


class FileJournal(Journal):
    """Journal `journal_id` in `directory`, which appends to its segment `segment`."""

    def __init__(self, directory: Path, journal_id: str, segment: int) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.journal_id = journal_id
        self.segment = segment
        self._directory = directory
        self._pending: list[str] = []
        self._descriptor = self._open()

    @override
    def note(self, change: Change) -> None:
        posting = change.posting
        kind = _KINDS[posting.dimension]
        self._pending.append(f"{kind} {change.number} {posting.key_id} {posting.at!r} {posting.amount}\n")

    @override
    def note_serial(self, client_id: str, serial: int) -> None:
        self._pending.append(f"s {serial} {client_id}\n")

    @override
    def flush(self) -> None:
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


class JournalContent:
    """The content of a journal from one segment on; `last_segment` is None if that segment is missing."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.serials: dict[str, int] = {}
        self.last_segment: int | None = None


def read_journal(directory: Path, journal_id: str, first_segment: int) -> JournalContent:
    """Return the content of a journal from `first_segment` on. A line cut off by a crash is left out."""
    content = JournalContent()
    if not (directory / f"{journal_id}.{first_segment}").exists():
        return content
    segment = first_segment
    while (path := directory / f"{journal_id}.{segment}").exists():
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                _read_line(line.split(), content)
        content.last_segment = segment
        segment += 1
    return content


def _read_line(words: list[str], content: JournalContent) -> None:
    if words[0] == "s":
        content.serials[words[2]] = int(words[1])
        return
    dimension = "requests" if words[0] == "r" else "tokens"
    posting = Posting(words[2], dimension, float(words[3]), int(words[4]))  # type: ignore[arg-type]
    content.changes.append(Change(int(words[1]), posting))


def restore_core(
    state: ResolvedState, snapshot: Snapshot | None, keyring: Keyring, wake: Callable[[], None]
) -> tuple[GatekeeperCore, FileJournal]:
    """Return the core that continues from the last one, and its journal.

    `wake` is called when this region wants to borrow from another.
    """
    restored = _restore(snapshot, state.state_dir / "limiter", partial(_create_ledger, state))
    ledger, clock, journal, lost_since = restored.ledger, restored.clock, restored.journal, restored.lost_since
    core: GatekeeperCore
    if isinstance(ledger, RegionLedger):
        region = state.region_name
        core = RegionCore(
            region, keyring, ledger, clock, journal=journal, lost_since=lost_since, patience=state.patience, wake=wake
        )
    else:
        core = GatekeeperCore(keyring, ledger, clock, journal=journal, lost_since=lost_since, patience=state.patience)
    core.restore_serials(restored.serials)
    return core, journal


def share_of(state: ResolvedState) -> Share:
    """Return this region's share of every limit."""
    region = state.region
    return Share() if region is None else Share.of_region(region.name, [region.name, *region.others])


class _Restored(NamedTuple):
    """The restored account. Charges since `lost_since` may be missing; None if none are."""

    clock: SteadyClock
    ledger: Ledger
    journal: FileJournal
    serials: dict[str, int]
    lost_since: float | None


def _create_ledger(state: ResolvedState, journal: Journal) -> Ledger:
    if state.region is None or not state.region.others:
        return Ledger(journal)
    return RegionLedger(share_of(state), frozenset(state.region.others), journal)


def _restore(snapshot: Snapshot | None, directory: Path, create: Callable[[Journal], Ledger]) -> _Restored:
    """Return the account in a ledger from `create`, with a journal in `directory`."""
    if snapshot is None:
        journal = FileJournal(directory, secrets.token_hex(8), 0)
        return _Restored(SteadyClock(), create(journal), journal, {}, None)
    content = read_journal(directory, snapshot.journal_id, snapshot.segment)
    if content.last_segment is None:
        journal = FileJournal(directory, secrets.token_hex(8), 0)
    else:
        journal = FileJournal(directory, snapshot.journal_id, content.last_segment + 1)
    clock = SteadyClock(not_before=snapshot.at)
    ledger = create(journal)
    saved = {}
    for charges in snapshot.charges:
        ledger.restore(charges)
        saved[charges.key_id] = charges.number
    now = clock()
    for change in content.changes:
        if change.number > saved.get(change.posting.key_id, 0):
            ledger.replay(change, now)
    has_all = content.last_segment is not None or snapshot.serials is not None
    is_whole = has_all or now - snapshot.at > WINDOW_S
    serials = content.serials or snapshot.serials or {}
    return _Restored(clock, ledger, journal, serials, None if is_whole else snapshot.at)
