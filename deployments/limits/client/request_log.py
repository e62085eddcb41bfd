"""The request log of an ingress replica: buffers records and hands them to the gatekeeper in batches.

Records are numbered. Each is kept until the gatekeeper reports it in the database, and is sent again to a restarted
gatekeeper, which drops those that it has: each is counted once. A journal on the node keeps them meanwhile, in case
this process dies. Above MAX_KEPT buffered records the oldest are dropped; `num_dropped` counts them.
"""

import asyncio
import logging
import secrets
from collections import deque
from contextlib import suppress

from deployments.limits.client.record_journal import RecordJournal, row_of
from deployments.limits.messages import Transport, TransportDown
from deployments.patience import USUAL, Patience
from deployments.state.usage.record import RequestRecord

logger = logging.getLogger(__name__)

MAX_KEPT = 100_000
_INTERVAL_S = 0.5
_BATCH = 1_000


class ShippedRequestLog:
    """A `RequestLog`; a background task ships the records, unless `background` is false.

    The `journal`, if there is one, keeps the records that a killed process has not shipped.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        journal: RecordJournal | None = None,
        patience: Patience = USUAL,
        background: bool = True,
    ) -> None:
        self.num_dropped = 0
        self._client_id = secrets.token_hex(8)
        self._transport = transport
        self._journal = journal
        self._patience = patience
        self._background = background
        self._kept: deque[tuple[object, ...]] = deque()
        self._first = 0
        self._next_to_send = 0
        self._epoch: str | None = None
        self._shipping: asyncio.Task[None] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all records are in the database."""
        return not self._kept

    def write_ahead(self, record: RequestRecord) -> None:
        """Write a record into the journal before `record` gets it."""
        if self._journal is not None:
            self._journal.write_ahead(record)

    def record(self, record: RequestRecord) -> None:
        """Buffer a record for shipping; never waits and never raises."""
        if self._journal is not None:
            self._journal.write(self._first + len(self._kept), record)
        self._kept.append(row_of(record))
        if len(self._kept) > MAX_KEPT:
            self._kept.popleft()
            self._first += 1
            self.num_dropped += 1
        if self._shipping is None and self._background:
            try:
                self._shipping = asyncio.get_running_loop().create_task(self._ship_until_empty())
            except RuntimeError:  # No event loop runs here: a later record from one ships this one too.
                return

    async def ship(self) -> bool:
        """Hand over the remaining records; return whether the gatekeeper answered."""
        while True:
            first = max(self._next_to_send, self._first)
            offset = first - self._first
            rows = [self._kept[index] for index in range(offset, min(offset + _BATCH, len(self._kept)))]
            try:
                epoch, durable = await self._transport.record(self._client_id, first, rows)
            except TransportDown:
                return False
            self._next_to_send = first + len(rows)
            if epoch != self._epoch:
                # A restarted process has only the records that are in the database.
                is_first_answer, self._epoch = self._epoch is None, epoch
                if not is_first_answer:
                    self._next_to_send = min(self._first, first)
                    self._forget_below(durable)
                    continue
            self._forget_below(durable)
            if self._next_to_send >= self._first + len(self._kept):
                return True

    async def until_kept(self) -> None:
        """Hand over the remaining records until the database has them all."""
        while self._kept:
            await self.ship()
            if self._kept:
                await asyncio.sleep(_INTERVAL_S)

    async def close(self) -> None:
        """Hand over the remaining records, wait for `Patience.stop_s` at most until the database has them, and stop.

        A gatekeeper may restart meanwhile. Another replica hands over the rest from the journal, unless the node is
        gone.
        """
        if self._shipping is not None:
            self._shipping.cancel()
            await asyncio.gather(self._shipping, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience.stop_s):
                await self.until_kept()
        if self._kept:
            logger.warning("%d request records are not in the database yet.", len(self._kept))
        if self._journal is not None:
            self._journal.close(is_handed_over=self.is_empty)

    def _forget_below(self, number: int) -> None:
        if self._journal is not None:
            self._journal.forget_below(number)
        while self._kept and self._first < number:
            self._kept.popleft()
            self._first += 1

    async def _ship_until_empty(self) -> None:
        try:
            while self._kept:
                await asyncio.sleep(_INTERVAL_S)
                await self.ship()
        finally:
            self._shipping = None
