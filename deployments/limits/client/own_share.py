"""A replica's view of its region's share of every limit, less loans to other regions; each sync renews it."""

from collections.abc import Callable, Mapping

from deployments.limits.messages import Standing
from deployments.limits.shares import Share
from deployments.state.identity.principal import Principal

_NOTHING = Standing(0, 0.0, 0, 0.0)


class OwnShare:
    """The share of this region; `clock` is this process's monotonic one."""

    def __init__(self, share: Share, clock: Callable[[], float]) -> None:
        self.has_others = share.count > 1
        self._share = share
        self._clock = clock
        self._lent: dict[str, tuple[Standing, float]] = {}

    def note(self, lent: Mapping[str, Standing]) -> None:
        """Take what a reply says was lent of some keys."""
        now = self._clock()
        self._lent.update({key_id: (standing, now) for key_id, standing in lent.items()})

    def of(self, principal: Principal) -> tuple[int, int]:
        """Return the share of a key's requests and of its tokens per minute, lent or not."""
        return self._share.of(principal.requests_per_minute), self._share.of(principal.tokens_per_minute)

    def part_of(self, principal: Principal, num_clients: int) -> tuple[int, int]:
        """Return one replica's part of the requests and tokens left; each is at least one unless none are left."""
        left = [share - lent for share, lent in zip(self.of(principal), self._lent_of(principal.key_id), strict=True)]
        requests, tokens = (max(0, min(room, max(1, room // num_clients))) for room in left)
        return requests, tokens

    def forget(self) -> None:
        """Drop the keys of which nothing is lent any more."""
        self._lent = {key_id: known for key_id, known in self._lent.items() if any(self._lent_of(key_id))}

    def _lent_of(self, key_id: str) -> tuple[int, int]:
        lent, at = self._lent.get(key_id, (_NOTHING, 0.0))
        elapsed = self._clock() - at
        return (
            lent.used_requests if elapsed < lent.reset_requests_s else 0,
            lent.used_tokens if elapsed < lent.reset_tokens_s else 0,
        )
