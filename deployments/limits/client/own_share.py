"""A replica's part of its region's share of every limit, within which it decides while the gatekeeper is away.

Each sync reports the loans to other regions, which reduce the share, and the number of replicas.
"""

from collections.abc import Callable, Mapping

from deployments.limits.client.leases import KeyLeases
from deployments.limits.contract import Decision, Denied, Granted
from deployments.limits.messages import NO_USAGE, KeyUsage
from deployments.limits.window import Share
from deployments.patience import Patience
from deployments.state.identity.principal import Principal

_FRESH_S = 2.0
"""The max age of a key's usage after which other replicas can have been granted only little more."""


class OwnShare:
    """The share of this region; `clock` is this process's monotonic one."""

    def __init__(self, share: Share, clock: Callable[[], float], patience: Patience) -> None:
        self.has_others = share.count > 1
        self._share = share
        self._clock = clock
        self._patience = patience
        self._lent: dict[str, tuple[KeyUsage, float]] = {}
        self._num_clients = 1

    def note(self, lent: Mapping[str, KeyUsage], num_clients: int) -> None:
        """Note the loans to other regions and the number of replicas from a reply."""
        now = self._clock()
        self._num_clients = num_clients
        self._lent.update({key_id: (usage, now) for key_id, usage in lent.items()})

    def of(self, principal: Principal) -> tuple[int, int]:
        """Return the region's share of a key's requests and tokens per minute, without regard to loans."""
        return self._share.of(principal.requests_per_minute), self._share.of(principal.tokens_per_minute)

    def decide(self, state: KeyLeases, requests: int, tokens: int, now_at: float, away_since: float) -> Decision | None:
        """Decide without the gatekeeper, within this replica's part of the share; its earlier grants count.

        Returns None while the gatekeeper may be back in a moment, unless the request fits and the key had used at most
        half of its minute: otherwise nearly all of the minute may have been granted to other replicas.
        """
        is_early = self._clock() - away_since < self._patience.back_soon_s
        if is_early and not self._has_plenty(state, away_since):
            return None
        taken = state.take_alone(requests, tokens, now_at, self._part_of(state.principal))
        if isinstance(taken, Granted):
            return taken
        if is_early:
            return None
        limit = self.of(state.principal)[taken.dimension == "tokens"]
        used = max(0, min(limit, limit - taken.limit + taken.used))
        wait_s = self._patience.back_soon_s if taken.retry_after_s is None else taken.retry_after_s
        return Denied(taken.dimension, limit, used, taken.requested, wait_s)

    def forget(self) -> None:
        """Drop keys without loans."""
        self._lent = {key_id: known for key_id, known in self._lent.items() if any(self._lent_of(key_id))}

    def _has_plenty(self, state: KeyLeases, away_since: float) -> bool:
        if state.usage is None or away_since - state.usage_at > _FRESH_S:
            return False
        requests, tokens = self.of(state.principal)
        return 2 * state.usage.used_requests <= requests and 2 * state.usage.used_tokens <= tokens

    def _part_of(self, principal: Principal) -> tuple[int, int]:
        """Return one replica's part of the requests and tokens left, at least one of each while any are left."""
        left = [share - lent for share, lent in zip(self.of(principal), self._lent_of(principal.key_id), strict=True)]
        requests, tokens = (max(0, min(room, max(1, room // self._num_clients))) for room in left)
        return requests, tokens

    def _lent_of(self, key_id: str) -> tuple[int, int]:
        lent, at = self._lent.get(key_id, (NO_USAGE, 0.0))
        elapsed = self._clock() - at
        return (
            lent.used_requests if elapsed < lent.reset_requests_s else 0,
            lent.used_tokens if elapsed < lent.reset_tokens_s else 0,
        )
