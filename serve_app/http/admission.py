"""Admission: a request runs only with a ticket, which is closed exactly once.

The gatekeeper counts requests and tokens; admission estimates the tokens of a request before it has run.
"""

import math
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from deployments.limits.contract import Denied, Gatekeeper, Granted, Quota
from deployments.models.contract.engine import Usage
from deployments.patience import USUAL, Patience
from deployments.state.identity.principal import Principal
from deployments.state.identity.tiers import weighted
from deployments.waiting import Lanes
from serve_app.errors.capacity import EngineOverloaded, RateLimited, render_duration
from serve_app.http.auth import KeyWatch
from serve_app.operations.contract import Cost

UNKNOWN_COMPLETION_TOKENS = 1024
"""The estimate for a request without max tokens while its key has no history with the model."""

_MAX_ENTRIES = 10_000
_AT_ONCE = 4
"""The requests of an account that are admitted in one turn of the event loop; each takes it a millisecond or two."""


class CompletionEstimator:
    """The tokens that a model usually generates for a key: a moving mean plus twice the mean deviation.

    So TCP estimates round trips (RFC 6298, there four times the deviation). Holds the most recently used keys.
    """

    def __init__(self, max_entries: int = _MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._seen: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def usual(self, key_id: str, model: str) -> int:
        """Return the tokens that a request without max tokens will probably generate."""
        seen = self._seen.get((key_id, model))
        if seen is None:
            return UNKNOWN_COMPLETION_TOKENS
        mean, deviation = seen
        return max(1, round(mean + 2 * deviation))

    def learn(self, key_id: str, model: str, completion_tokens: int) -> None:
        """Learn from the tokens that one request generated."""
        place = (key_id, model)
        seen = self._seen.get(place)
        if seen is None:
            self._seen[place] = (float(completion_tokens), completion_tokens / 2)
            if len(self._seen) > self._max_entries:
                self._seen.popitem(last=False)
            return
        mean, deviation = seen
        off = completion_tokens - mean
        self._seen[place] = (mean + off / 8, deviation + (abs(off) - deviation) / 4)
        self._seen.move_to_end(place)


class PromptEstimator:
    """The ratio of a prompt's real tokens to the estimated ones, by key and model.

    Only the replica knows a model's template and vocabulary. The ratio rises at once and falls slowly: an estimate that
    is too low passes the limit, one that is too high is corrected within a second.
    """

    def __init__(self, max_entries: int = _MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._seen: OrderedDict[tuple[str, str], float] = OrderedDict()

    def usual(self, key_id: str, model: str) -> float:
        """Return the ratio of the key, else that of the model, else 1."""
        seen = self._seen.get((key_id, model))
        return self._seen.get(("", model), 1.0) if seen is None else seen

    def learn(self, key_id: str, model: str, estimated: int, actual: int) -> None:
        """Learn from the tokens of one prompt."""
        ratio = actual / max(1, estimated)
        for place in ((key_id, model), ("", model)):
            seen = self._seen.get(place, ratio)
            self._seen[place] = max(ratio, seen + (ratio - seen) / 16)
            self._seen.move_to_end(place)
        while len(self._seen) > self._max_entries:
            self._seen.popitem(last=False)


class Places:
    """The places of a replica. The last eighth is for accounts with less than an equal share."""

    def __init__(self, num_places: int) -> None:
        self._num_places = num_places
        self._taken: Counter[str] = Counter()

    def take(self, account: str) -> None:
        """Take a place for a request of an account. Raises EngineOverloaded if none is left for it."""
        if self._taken.total() >= self._num_places - self._num_places // 8:
            num_others = len(self._taken) - (account in self._taken)
            if self._taken[account] >= self._num_places // (num_others + 2):
                raise EngineOverloaded
        self._taken[account] += 1

    def free(self, account: str) -> None:
        """Free a place that was taken."""
        self._taken[account] -= 1
        if not self._taken[account]:
            del self._taken[account]


class Admission:
    """Issues tickets; at most `num_places` are open at once."""

    def __init__(self, gatekeeper: Gatekeeper, patience: Patience = USUAL, num_places: int = sys.maxsize) -> None:
        self.gatekeeper = gatekeeper
        self.places = Places(num_places)
        self.completions = CompletionEstimator()
        self.prompts = PromptEstimator()
        self._lanes = Lanes(_AT_ONCE)
        self.key_watch = KeyWatch(gatekeeper, patience)

    async def admit(self, principal: Principal) -> "Ticket":
        """Return a ticket for one request, when it is the account's turn.

        Raises:
            EngineOverloaded: no place is left for this account.
            RateLimited: the key's requests of this minute are used up.
        """
        async with self._lanes.enter(principal.account):
            pass  # What follows may wait for the gatekeeper, and delays no other request.
        self.places.take(principal.account)
        try:
            decision = await self.gatekeeper.admit(principal)
            if isinstance(decision, Denied):
                raise RateLimited(decision, principal.organization)
        except BaseException:
            self.places.free(principal.account)
            raise
        return Ticket(self, principal)

    def quota(self, principal: Principal) -> Quota:
        """Return what is left of the key's limits, as far as this process knows."""
        return self.gatekeeper.quota(principal)


class Ticket:
    """The right to run one request, and the tokens held for it.

    As a context manager it is refunded on leaving, unless it was detached: then its holder settles or refunds it.
    Closing a closed ticket does nothing.
    """

    __slots__ = (
        "_admission",
        "_cost",
        "_granted",
        "_has_place",
        "_is_detached",
        "_principal",
        "_token_weight",
        "reserved_tokens",
    )

    def __init__(self, admission: Admission, principal: Principal) -> None:
        self._admission = admission
        self._principal = principal
        self._has_place = True
        self._cost: Cost | None = None
        self._granted: Granted | None = None
        self._token_weight = 1.0
        self.reserved_tokens = 0
        self._is_detached = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_detached:
            self.refund()

    async def reserve(self, cost: Cost, token_weight: float = 1.0) -> None:
        """Hold the tokens of the request, each counted `token_weight` times. Raises RateLimited if too few are left."""
        tokens = weighted(self._worth(cost), token_weight)
        limit = self._principal.tokens_per_minute
        if tokens > limit:
            used = limit - self._admission.quota(self._principal).remaining_tokens
            denied = Denied("tokens", limit, used, tokens, None)
            raise RateLimited(denied, self._principal.organization, cost.model)
        decision = await self._admission.gatekeeper.reserve(self._principal, tokens)
        if isinstance(decision, Denied):
            raise RateLimited(decision, self._principal.organization, cost.model)
        self._cost, self._granted, self.reserved_tokens = cost, decision, tokens
        self._token_weight = token_weight

    def _worth(self, cost: Cost) -> int:
        """Return the tokens to hold.

        The client's max tokens are held in full, so that concurrent requests never exceed the limit. Without them, what
        the key usually generates is held, but never so much that a prompt within the limit is refused.
        """
        key_id, limit = self._principal.key_id, self._principal.tokens_per_minute
        certain = cost.prompt_tokens + cost.cut_tokens
        if cost.completion_tokens is not None:
            certain += min(cost.completion_tokens, cost.max_completion_tokens)
            guessed = 0
        else:
            guessed = min(self._admission.completions.usual(key_id, cost.model), cost.max_completion_tokens)
        guessed += max(0, math.ceil(cost.prompt_tokens * (self._admission.prompts.usual(key_id, cost.model) - 1)))
        return max(certain, min(certain + guessed, limit))

    def until_revoked(self, digest: bytes | None, end: Callable[[], object]) -> AbstractContextManager[None]:
        """Return a context in which `end` is called when the key with this digest is revoked or expires."""
        return self._admission.key_watch.watching(digest, end)

    def detach(self) -> Self:
        """Return the ticket, which now outlives its context and must be closed."""
        self._is_detached = True
        return self

    def leave_place(self) -> None:
        """Free the place: a background response is not a request that waits."""
        if self._has_place:
            self._has_place = False
            self._admission.places.free(self._principal.account)

    def settle(self, usage: Usage | None) -> None:
        """Correct the held tokens to those that were used; None, for a request that never ran, refunds all."""
        cost = self._cost
        if usage is None or cost is None:
            self.refund()
        elif (
            self._close(weighted(usage.total_tokens + cost.cut_tokens, self._token_weight))
            and cost.max_completion_tokens
        ):
            key_id, model = self._principal.key_id, cost.model
            self._admission.completions.learn(key_id, model, usage.completion_tokens)
            if usage.prompt_tokens and not cost.cut_tokens:
                self._admission.prompts.learn(key_id, model, cost.prompt_tokens, usage.prompt_tokens)

    def refund(self) -> None:
        """Give back all held tokens."""
        self._close(0)

    def _close(self, used: int) -> bool:
        self.leave_place()
        granted, self._granted = self._granted, None
        if granted is None:
            return False
        self._admission.gatekeeper.settle(self._principal, granted=granted, reserved=self.reserved_tokens, used=used)
        self.reserved_tokens = 0
        return True


def quota_headers(quota: Quota) -> list[tuple[bytes, bytes]]:
    """Return the `x-ratelimit-*` headers of an answer."""
    return [
        (b"x-ratelimit-limit-requests", b"%d" % quota.limit_requests),
        (b"x-ratelimit-limit-tokens", b"%d" % quota.limit_tokens),
        (b"x-ratelimit-remaining-requests", b"%d" % max(0, quota.remaining_requests)),
        (b"x-ratelimit-remaining-tokens", b"%d" % max(0, quota.remaining_tokens)),
        (b"x-ratelimit-reset-requests", render_duration(quota.reset_requests_s).encode()),
        (b"x-ratelimit-reset-tokens", render_duration(quota.reset_tokens_s).encode()),
    ]
