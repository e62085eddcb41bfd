"""The gatekeeper's link to another region: a thread that sends requests and applies the replies.

It speaks HTTP over TLS with the other region's fronts, over one connection that stays open. The core is not locked
while it waits.
"""

import logging
import ssl
import threading
import time
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from deployments.limits.regions.core import RegionCore
from deployments.limits.regions.messages import INTERVAL_S, MAX_BYTES, parse_reply, render
from deployments.patience import USUAL, Patience
from deployments.proof import LIMITS_HEADER, LIMITS_PATH, RegionTrust

logger = logging.getLogger(__name__)

_PAUSE_S = 0.5
"""Between two tries while the region is away, and between two requests while no loan is wanted."""
_STOP_S = 2.0


class LinkDown(Exception):
    """The other region did not answer, or without proof."""


class RegionClient:
    """The connection to the fronts of `region` at `address`; `authority` is a PEM file of trusted authorities."""

    def __init__(
        self, region: str, address: str, trust: RegionTrust, authority: Path | None = None, patience: Patience = USUAL
    ) -> None:
        self._region = region
        self._parts = urlsplit(address)
        self._trust = trust
        self._authority = authority
        self._timeout_s = patience.region_s
        self._connection: HTTPConnection | None = None

    def exchange(self, body: bytes) -> bytes:
        """Return the body of the reply.

        Raises:
            LinkDown: there is none.
        """
        header, nonce = self._trust.sign_request(self._region, body)
        headers = {LIMITS_HEADER: header, "content-type": "application/json"}
        connection = self._connection = self._connection or self._connect()
        try:
            connection.request("POST", LIMITS_PATH, body, headers)
            answer = connection.getresponse()
            reply, proof = answer.read(MAX_BYTES + 1), answer.getheader(LIMITS_HEADER, "")
        except (OSError, HTTPException) as error:
            self.close()
            raise LinkDown(f"it does not answer: {type(error).__name__}.") from None
        if not answer.isclosed():
            self.close()
        if answer.status != 200:
            raise LinkDown(f"it answers {answer.status}.")
        if not self._trust.check_reply(nonce, proof, reply):
            raise LinkDown("its answer has no proof.")
        return reply

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self) -> HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return HTTPConnection(host, port, timeout=self._timeout_s)
        try:
            context = ssl.create_default_context(cafile=self._authority)
        except OSError as error:
            raise LinkDown(f"its certificate cannot be checked: {type(error).__name__}.") from None
        return HTTPSConnection(host, port, timeout=self._timeout_s, context=context)


class RegionLink:
    """Exchanges loans with one region until `stop`."""

    def __init__(self, core: RegionCore, region: str, client: RegionClient) -> None:
        self._core = core
        self._region = region
        self._client = client
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"gatekeeper-{region}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Ask the region soon."""
        self._wanted.set()

    def stop(self) -> None:
        """Stop the thread. Wait two seconds at most for an answer that is on its way."""
        self._stopping.set()
        self._wanted.set()
        self._thread.join(_STOP_S)

    def exchange(self) -> bool:
        """Send one request and apply its reply; return whether there was one."""
        request = self._core.next_request(self._region)
        try:
            reply = parse_reply(self._client.exchange(render(request)))
        except (LinkDown, ValueError) as error:
            self._core.fail(self._region, str(error))
            return False
        self._core.take_reply(self._region, request, reply)
        return reply.problem is None

    def _run(self) -> None:
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                is_answered = self.exchange()
            except Exception as error:  # The thread must not end: the region would keep to its share for ever.
                logger.exception("Limits were not exchanged with region %s: %s", self._region, type(error).__name__)
                is_answered = False
            self._stopping.wait(max(0.0, begun + (INTERVAL_S if is_answered else _PAUSE_S) - time.monotonic()))
            if not self._core.is_short(self._region):
                self._wanted.wait(_PAUSE_S)
            self._wanted.clear()
        self._client.close()
