"""Tells leases that nobody holds any more from those that are held, without trust in anybody's wall clock."""

import time
from collections.abc import Callable, Collection, Hashable


class LeaseWatch:
    """What one process has seen of the leases of others.

    A lease names the time at which it ends by its holder's wall clock. Where that was ahead of the observer's, the time
    is further off than a lease lasts, and nothing would end it if its holder died. So such a lease also ends once
    nothing of it has changed for its length, as the observer's own monotonic clock measures it: whoever holds one
    renews it more often than that.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._seen: dict[str, tuple[Hashable, float]] = {}

    def is_abandoned(self, name: str, value: Hashable, lease_s: float) -> bool:
        """Note what a lease holds now; return whether it has held just that for its whole length."""
        known = self._seen.get(name)
        if known is None or known[0] != value:
            self._seen[name] = (value, self._monotonic())
            return False
        return self._monotonic() - known[1] >= lease_s

    def forget_others(self, names: Collection[str]) -> None:
        """Forget all leases but these."""
        self._seen = {name: self._seen[name] for name in names if name in self._seen}
