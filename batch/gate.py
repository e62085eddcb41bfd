"""How many lines may be with the models at once, and whose turn it is."""

import asyncio
from collections import deque

_SHRINK = 0.7
_START = 32.0  # A model of one replica holds as many.


class Gate:
    """Lets lines through, in turns between accounts; holds more of them back after every refusal by a replica.

    The limit grows by one for each line until the first refusal, then by one for each round of lines that were not
    refused, and shrinks by a third at a refusal (slow start, additive increase, multiplicative decrease, as TCP does).
    Refusals that come together count once.
    """

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self._limit = min(_START, float(max_in_flight))
        self.num_in_flight = 0
        self._to_spare = 0
        self._was_refused = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_due = False

    @property
    def limit(self) -> int:
        """How many lines may be in flight now."""
        return max(1, int(self._limit))

    async def enter(self, account: str) -> None:
        """Wait until a line of the account may go; `leave` must follow."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(account, deque()).append(turn)
        self._let_in_soon()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            else:
                self._forget(account, turn)
            raise

    def leave(self) -> None:
        """Note that a line has come back."""
        self.num_in_flight -= 1
        self._let_in_soon()

    def grow(self) -> None:
        """Note that a replica took a line."""
        self._to_spare = max(0, self._to_spare - 1)
        step = 1 / self._limit if self._was_refused else 1.0
        self._limit = min(float(self._max_in_flight), self._limit + step)

    def shrink(self) -> None:
        """Note that a replica refused a line, being full."""
        if self._to_spare:
            return
        self._to_spare = self.num_in_flight
        self._was_refused = True
        self._limit = max(1.0, self._limit * _SHRINK)

    def _let_in_soon(self) -> None:
        """Let lines in once all who are about to ask have asked: lines come back by the hundred at one time."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._let_in)

    def _let_in(self) -> None:
        """Let a line of each account in that waits, as far as there is room; those let in ask for more meanwhile."""
        self._is_due = False
        for account in list(self._waiting):
            if self.num_in_flight >= self.limit:
                return
            turns = self._waiting.pop(account)
            turn = turns.popleft()
            if turns:
                self._waiting[account] = turns  # At the end of the line of accounts.
            if not turn.done():
                self.num_in_flight += 1
                turn.set_result(None)
        if self._waiting and self.num_in_flight < self.limit:
            self._let_in_soon()

    def _forget(self, account: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(account)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[account]
        self._let_in_soon()
