"""Limits how many lines are in flight at once, and chooses the account whose line is next.

`LineWorker` acquires a place for each line; `LineCalls` reports whether replicas accept or refuse lines. Accounts that
wait take turns.
"""

import asyncio
from collections import deque

_SHRINK = 0.7
_START = 32.0  # What a model with one replica runs.


class ConcurrencyLimiter:
    """An adaptive limit of lines in flight.

    The limit grows by one for each accepted line until the first refusal, then by one for each round of lines without
    a refusal, and shrinks by a third at a refusal (slow start, additive increase, multiplicative decrease, as TCP
    does). Refusals that come together count once.
    """

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self._limit = min(_START, float(max_in_flight))
        self.num_in_flight = 0
        self._num_until_shrink = 0
        self._was_refused = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_scheduled = False

    @property
    def limit(self) -> int:
        """How many lines may be in flight now."""
        return max(1, int(self._limit))

    async def acquire(self, account: str) -> None:
        """Wait until a line of the account may run; `release` must follow."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(account, deque()).append(turn)
        self._schedule_admission()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()
            else:
                self._forget(account, turn)
            raise

    def release(self) -> None:
        """Note that a line has ended."""
        self.num_in_flight -= 1
        self._schedule_admission()

    def grow(self) -> None:
        """Note that a replica accepted a line."""
        self._num_until_shrink = max(0, self._num_until_shrink - 1)
        step = 1 / self._limit if self._was_refused else 1.0
        self._limit = min(float(self._max_in_flight), self._limit + step)

    def shrink(self) -> None:
        """Note that a full replica refused a line."""
        if self._num_until_shrink:
            return
        self._num_until_shrink = self.num_in_flight
        self._was_refused = True
        self._limit = max(1.0, self._limit * _SHRINK)

    def _schedule_admission(self) -> None:
        # In the next turn of the event loop, so that lines that end together share one decision.
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._admit)

    def _admit(self) -> None:
        """Admit one waiting line of each account, up to the limit; more may wait by the next turn of the event loop."""
        self._is_scheduled = False
        for account in list(self._waiting):
            if self.num_in_flight >= self.limit:
                return
            turns = self._waiting.pop(account)
            turn = turns.popleft()
            if turns:
                self._waiting[account] = turns  # Behind all other accounts.
            if not turn.done():
                self.num_in_flight += 1
                turn.set_result(None)
        if self._waiting and self.num_in_flight < self.limit:
            self._schedule_admission()

    def _forget(self, account: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(account)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[account]
        self._schedule_admission()
