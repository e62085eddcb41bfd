"""Restores the gatekeeper's account from the last snapshot and the later changes in the journal.

`GatekeeperProcess` calls it when it starts.
"""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from deployments.limits.journal import FileJournal, read_journal
from deployments.limits.ledger import Journal, Ledger
from deployments.limits.snapshots import Snapshot
from deployments.limits.window import WINDOW_S
from deployments.state.database.clock import SteadyClock


class Restored(NamedTuple):
    """The restored account. Charges since `lost_since` may be missing; None if none are."""

    clock: SteadyClock
    ledger: Ledger
    journal: FileJournal
    serials: dict[str, int]
    lost_since: float | None


def restore(snapshot: Snapshot | None, directory: Path, create: Callable[[Journal], Ledger]) -> Restored:
    """Return the account, in the ledger that `create` makes over the journal in `directory`."""
    if snapshot is None:
        journal = FileJournal(directory, secrets.token_hex(8), 0)
        return Restored(SteadyClock(), create(journal), journal, {}, None)
    recorded = read_journal(directory, snapshot.journal_id, snapshot.segment)
    if recorded.last_segment is None:
        journal = FileJournal(directory, secrets.token_hex(8), 0)
    else:
        journal = FileJournal(directory, snapshot.journal_id, recorded.last_segment + 1)
    clock = SteadyClock(not_before=snapshot.at)
    ledger = create(journal)
    saved = {}
    for charges in snapshot.charges:
        ledger.restore(charges)
        saved[charges.key_id] = charges.number
    now = clock()
    for change in recorded.changes:
        if change.number > saved.get(change.posting.key_id, 0):
            ledger.replay(change, now)
    is_whole = recorded.last_segment is not None or now - snapshot.at > WINDOW_S
    return Restored(clock, ledger, journal, recorded.serials, None if is_whole else snapshot.at)
