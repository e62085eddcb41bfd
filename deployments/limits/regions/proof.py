"""What two regions prove to each other before they exchange loans: that both have the service's pepper.

A request is for one region, and not old. That it comes again does nothing: it names the lender's process and a serial.
"""

import hmac
import secrets
import time
from collections.abc import Callable

HEADER = "x-manta-limits"
PATH = "/-/manta/limits"
"""Where the ingress replicas of a region answer the gatekeepers of the others."""
MAX_AGE_S = 300.0
"""The clocks of regions may differ by less than this."""


class RegionTrust:
    """The key of one service, and the wall clock."""

    def __init__(self, key: bytes, wall: Callable[[], float] = time.time) -> None:
        self._key = key
        self._wall = wall

    @classmethod
    def from_pepper(cls, pepper: bytes, wall: Callable[[], float] = time.time) -> "RegionTrust":
        """Derive the key."""
        return cls(hmac.digest(pepper, b"limits across regions", "sha256"), wall)

    def sign_request(self, region: str, body: bytes) -> tuple[str, str]:
        """Return the header of a request to a region, and its nonce."""
        nonce = secrets.token_hex(16)
        stamp = f"{region} {int(self._wall())} {nonce}"
        return f"{stamp} {self._prove('request', stamp, body)}", nonce

    def check_request(self, region: str, header: str, body: bytes) -> str | None:
        """Return the nonce of a request to this region; None if its header does not prove one of now."""
        stamp, _, proof = header.rpartition(" ")
        if not is_same(proof, self._prove("request", stamp, body)):
            return None
        to, at, nonce = stamp.split(" ")
        return nonce if to == region and abs(self._wall() - int(at)) <= MAX_AGE_S else None

    def sign_reply(self, nonce: str, body: bytes) -> str:
        """Return the header of the reply to the request with this nonce."""
        return self._prove("reply", nonce, body)

    def check_reply(self, nonce: str, header: str, body: bytes) -> bool:
        """Return whether a header proves that a body is the reply."""
        return is_same(header, self.sign_reply(nonce, body))

    def _prove(self, kind: str, stamp: str, body: bytes) -> str:
        about = f"{kind} {stamp}\n".encode("utf-8", "surrogateescape")
        return hmac.digest(self._key, about + body, "sha256").hex()


def is_same(proof: str, expected: str) -> bool:
    """Return whether two proofs are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(proof.encode("utf-8", "surrogateescape"), expected.encode())
