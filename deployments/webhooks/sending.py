"""Sends one event to one endpoint, signed as Standard Webhooks says (standardwebhooks.com, "Signature scheme").

A signature is the HMAC-SHA256 of `ID.TIMESTAMP.BODY` under the endpoint's secret. While a rotated secret is kept, there
are two of them.
"""

import base64
import hmac
import time
from collections.abc import Callable
from ipaddress import ip_address

import httpx2
import orjson

from deployments.state.webhooks.rows import Endpoint, Event, key_of_secret
from deployments.tools.outbound.addresses import AddressRules
from deployments.tools.outbound.errors import AddressRefused
from deployments.tools.outbound.fetching import FetchBounds, Fetcher

TRY_S = 15.0
"""How long an endpoint may take to answer."""
_MAX_ANSWER_BYTES = 1024 * 1024
_USER_AGENT = "Manta-Webhooks"


class WebhookSender:
    """Sends events to where the rules allow. Redirects are not followed."""

    def __init__(
        self, rules: AddressRules, clock: Callable[[], float] = time.time, fetcher: Fetcher | None = None
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._fetcher = fetcher or Fetcher(rules, FetchBounds(max_s=TRY_S, max_bytes=_MAX_ANSWER_BYTES))

    def check_url(self, url: str) -> None:
        """Refuse an address to which nothing is sent: a private one, or one without TLS that no operator has named.

        Raises:
            AddressRefused: it may not be sent to, whatever its host resolves to.
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
            OutboundError: it may not be sent there, or there was no answer.
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
    """Return the headers that prove a body to come from this service, at a time in Unix seconds."""
    content = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    secrets = [endpoint.secret, *([endpoint.previous] if endpoint.previous else [])]
    signatures = (base64.b64encode(hmac.digest(key_of_secret(one), content, "sha256")).decode() for one in secrets)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
