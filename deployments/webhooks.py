"""Webhooks: takes the deliveries that are due from the queue, sends each to its endpoint, and notes the result.

The batch coordinator's process runs a `Deliverer`. Several may run, in one region or in two: each takes deliveries of
its own. A message is signed as Standard Webhooks says (standardwebhooks.com, "Signature scheme"): with the HMAC-SHA256
of `ID.TIMESTAMP.BODY` under the endpoint's secret, and while a rotated secret is kept, under both.
"""

import asyncio
import base64
import hmac
import logging
import time
from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address

import httpx2
import orjson
from sqlalchemy.exc import DBAPIError

from deployments.state.database.queues import Places
from deployments.state.webhooks.queue import MAX_PER_ENDPOINT, DeliveryQueue
from deployments.state.webhooks.rows import Delivery, Endpoint, Event, key_of_secret
from deployments.tools.outbound.addresses import AddressRules
from deployments.tools.outbound.errors import AddressRefused, OutboundError
from deployments.tools.outbound.fetching import FetchBounds, Fetcher
from deployments.waiting import end_all, worth_logging

logger = logging.getLogger(__name__)

TRY_S = 15.0
"""How long an endpoint may take to answer."""
_MAX_ANSWER_BYTES = 1024 * 1024
_USER_AGENT = "Manta-Webhooks"
_POLL_S = 1.0
_MAX_SENDING = 64
_GONE = 410


class Deliverer:
    """Sends up to 64 deliveries at once, at most half of them for one account, until it is cancelled."""

    def __init__(self, queue: DeliveryQueue, sender: "WebhookSender", poll_s: float = _POLL_S) -> None:
        self._queue = queue
        self._sender = sender
        self._poll_s = poll_s
        self._sending: dict[asyncio.Task[None], Endpoint] = {}
        self._num_failures = 0

    async def run(self) -> None:
        """Deliver until cancelled; a delivery on its way is then tried again later."""
        try:
            while True:
                if not await self._take():
                    await asyncio.sleep(self._poll_s)
        finally:
            await end_all(self._sending)
            await self._sender.aclose()

    async def _take(self) -> bool:
        """Begin to send the due deliveries; return whether there were any."""
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
                logger.info("Dropped %s for %s.", delivery.event.event_id, delivery.endpoint.endpoint_id)
        except (DBAPIError, OSError) as error:  # It is tried again when the lease ends.
            logger.warning("The result of a delivery could not be written: %s", type(error).__name__)


class WebhookSender:
    """Sends events to addresses that the rules allow, and follows no redirects."""

    def __init__(
        self, rules: AddressRules, clock: Callable[[], float] = time.time, fetcher: Fetcher | None = None
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._fetcher = fetcher or Fetcher(rules, FetchBounds(max_s=TRY_S, max_bytes=_MAX_ANSWER_BYTES))

    def check_url(self, url: str) -> None:
        """Refuse a private address, and an address without TLS, unless the operator has named it.

        Raises:
            AddressRefused: no event may be sent there, whatever its host resolves to.
        """
        try:
            parsed = httpx2.URL(url)
        except (httpx2.InvalidURL, TypeError, ValueError):
            raise AddressRefused("The address is malformed.") from None
        self._rules.check_url(parsed)
        if parsed.scheme != "https" and not self._is_named(parsed.host):
            raise AddressRefused("The address must begin with https://.")
        try:
            ip_address(parsed.host)
        except ValueError:
            return
        self._rules.choose(parsed.host, [parsed.host])

    async def send(self, event: Event, endpoint: Endpoint) -> int:
        """Send an event; return the HTTP status of the answer.

        Raises:
            OutboundError: the address is refused, or there was no answer.
        """
        self.check_url(endpoint.url)
        body = orjson.dumps(event.to_wire())
        headers = {
            "content-type": "application/json",
            "user-agent": _USER_AGENT,
            **sign(event.event_id, int(self._clock()), body, endpoint),
        }
        return (await self._fetcher.ask("POST", endpoint.url, headers=headers, content=body)).status

    async def aclose(self) -> None:
        """Close every connection."""
        await self._fetcher.aclose()

    def _is_named(self, host: str) -> bool:
        if self._rules.names(host):
            return True
        try:
            return any(ip_address(host) in network for network in self._rules.allowed_networks)
        except ValueError:
            return False


def sign(message_id: str, timestamp: int, body: bytes, endpoint: Endpoint) -> dict[str, str]:
    """Return the headers that prove that a body comes from this service; `timestamp` is in Unix seconds."""
    content = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    secrets = [endpoint.secret, *([endpoint.previous] if endpoint.previous else [])]
    signatures = (base64.b64encode(hmac.digest(key_of_secret(one), content, "sha256")).decode() for one in secrets)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
