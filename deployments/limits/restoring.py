"""Restores the gatekeeper's account from the last snapshot and the later changes in the journal.

`GatekeeperProcess` calls it when it starts.
"""

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from deployments.limits.core import GatekeeperCore
from deployments.limits.journal import FileJournal, read_journal
from deployments.limits.keyring import Keyring
from deployments.limits.ledger import Journal, Ledger
from deployments.limits.regions.core import RegionCore
from deployments.limits.regions.ledger import RegionLedger
from deployments.limits.shares import Share
from deployments.limits.snapshots import Snapshot
from deployments.limits.window import WINDOW_S
from deployments.state.config import ResolvedState
from deployments.state.database.clock import SteadyClock


def restore_core(
    state: ResolvedState, snapshot: Snapshot | None, keyring: Keyring, wake: Callable[[], None]
) -> tuple[GatekeeperCore, FileJournal]:
    """Return the core that goes on where the last one ended, and its journal.

    `wake` is called when room from another region is wanted.
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
    """Return the share of every limit that this region admits."""
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
    """Return the account, in the ledger that `create` makes over the journal in `directory`."""
    if snapshot is None:
        journal = FileJournal(directory, secrets.token_hex(8), 0)
        return _Restored(SteadyClock(), create(journal), journal, {}, None)
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
    has_all = recorded.last_segment is not None or snapshot.serials is not None
    is_whole = has_all or now - snapshot.at > WINDOW_S
    serials = recorded.serials or snapshot.serials or {}
    return _Restored(clock, ledger, journal, serials, None if is_whole else snapshot.at)
