"""Delivers what is in the queue of webhooks: takes what is due, sends it, and notes how that went.

The batch coordinator's process runs it. Several may run, in one cluster or in two: each takes deliveries of its own.
"""

import asyncio
import logging
from collections import Counter

from sqlalchemy.exc import DBAPIError

from deployments.state.database.turns import Places
from deployments.state.webhooks.queue import MAX_PER_ENDPOINT, DeliveryQueue
from deployments.state.webhooks.rows import Delivery, Endpoint
from deployments.tools.outbound.errors import OutboundError
from deployments.waiting import worth_logging
from deployments.webhooks.sending import WebhookSender

logger = logging.getLogger(__name__)

_POLL_S = 1.0
_MAX_SENDING = 64
_GONE = 410


class Deliverer:
    """Sends up to 64 deliveries at once, until it is cancelled; half of them at most to one account."""

    def __init__(self, queue: DeliveryQueue, sender: WebhookSender, poll_s: float = _POLL_S) -> None:
        self._queue = queue
        self._sender = sender
        self._poll_s = poll_s
        self._sending: dict[asyncio.Task[None], Endpoint] = {}
        self._num_failures = 0

    async def run(self) -> None:
        """Deliver; what is on its way when this is cancelled is tried again later."""
        try:
            while True:
                if not await self._take():
                    await asyncio.sleep(self._poll_s)
        finally:
            tasks = list(self._sending)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._sender.aclose()

    async def _take(self) -> bool:
        """Begin to send what is due; return whether there was anything."""
        room = _MAX_SENDING - len(self._sending)
        by_endpoint = Counter(endpoint.endpoint_id for endpoint in self._sending.values())
        busy = [one for one, count in by_endpoint.items() if count >= MAX_PER_ENDPOINT]
        places = Places(Counter(endpoint.account for endpoint in self._sending.values()), room)
        try:
            taken = await self._queue.take(places, busy) if room else []
        except (DBAPIError, OSError) as error:
            self._num_failures += 1
            if worth_logging(self._num_failures):
                logger.warning("Webhooks could not be read %d times: %s", self._num_failures, type(error).__name__)
            return False
        self._num_failures = 0
        for delivery in taken:
            task = asyncio.get_running_loop().create_task(self._deliver(delivery))
            self._sending[task] = delivery.endpoint
            task.add_done_callback(lambda done: self._sending.pop(done, None))
        return bool(taken)

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            status: int | None = await self._sender.send(delivery.event, delivery.endpoint)
        except OutboundError:
            status = None
        try:
            if status is not None and 200 <= status < 300:
                await self._queue.note_delivered(delivery)
            elif await self._queue.note_failed(delivery, is_gone=status == _GONE):
                logger.info("%s is not sent to %s any more.", delivery.event.event_id, delivery.endpoint.endpoint_id)
        except (DBAPIError, OSError) as error:  # It is tried again when its time here is over.
            logger.warning("A webhook's delivery could not be noted: %s", type(error).__name__)
