"""Proofs under the service's pepper, by which fronts, ingress replicas and regions recognize each other.

A front trusts only an ingress replica that proves it belongs to the service: another program may listen on a port where
a replica once did. A replica adopts a request's id only from a front that signed it. Two regions exchange quota loans
only after both have proved that they have the pepper.
"""

import base64
import hmac
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

REQUEST_ID_HEADER = "x-manta-request-id"
PROOF_HEADER = "x-manta-proof"
NONCE_HEADER = "x-manta-nonce"
FROM_REGION_HEADER = "x-manta-from-region"
"""Marks a request that another region's front has forwarded: the region's name, the request id, and a signature of
both, joined by colons."""
LIMITS_HEADER = "x-manta-limits"
FRONTS_PATH = "/-/manta/"
"""The prefix of the paths on which fronts and gatekeepers are answered. Each request there carries a proof."""
QUESTION_PATH = f"{FRONTS_PATH}ingress"
"""Where an ingress replica answers the fronts."""
LIMITS_PATH = f"{FRONTS_PATH}limits"
"""Where a region's ingress replicas answer the gatekeepers of the other regions."""
MAX_AGE_S = 300.0
"""The clocks of regions may differ by less than this."""

_SIGNED_ID = re.compile(rb"(req_[0-9a-f]{32}) ([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class FrontTrust:
    """The keys that fronts and ingress replicas share: one signs request ids, the other questions and answers."""

    request_key: bytes = field(repr=False)
    proof_key: bytes = field(repr=False)

    @classmethod
    def from_pepper(cls, pepper: bytes) -> Self:
        """Derive the keys from the service's pepper."""
        return cls(hmac.digest(pepper, b"front request ids", "sha256"), hmac.digest(pepper, b"front proofs", "sha256"))

    def request_id_of(self, value: bytes) -> str | None:
        """Return the request id in a header that a front has signed, None for anything else."""
        found = _SIGNED_ID.fullmatch(value)
        if found is None or not is_same(found[2].decode(), _digest(self.request_key, found[1])):
            return None
        return found[1].decode()

    def prove_question(self, nonce: str) -> str:
        """Return the proof that a question with this nonce comes from a front."""
        return _digest(self.proof_key, b"question %s " % nonce.encode())

    def prove_answer(self, nonce: str, body: bytes) -> str:
        """Return the proof that a body answers the question with this nonce."""
        return _digest(self.proof_key, b"answer %s " % nonce.encode() + body)


class RegionTrust:
    """The key that the gatekeepers of all regions share. `wall` is the wall clock.

    A request is for one region, and recent. Sending it again has no effect: it names the lender's process and a serial.
    """

    def __init__(self, key: bytes, wall: Callable[[], float] = time.time) -> None:
        self._key = key
        self._wall = wall

    @classmethod
    def from_pepper(cls, pepper: bytes, wall: Callable[[], float] = time.time) -> Self:
        """Derive the key from the service's pepper."""
        return cls(hmac.digest(pepper, b"limits across regions", "sha256"), wall)

    def sign_request(self, region: str, body: bytes) -> tuple[str, str]:
        """Return the header of a request to a region, and its nonce."""
        nonce = new_nonce()
        stamp = f"{region} {int(self._wall())} {nonce}"
        return f"{stamp} {self._prove('request', stamp, body)}", nonce

    def check_request(self, region: str, header: str, body: bytes) -> str | None:
        """Return the nonce of a request to this region; None without a proof, or if the request is too old."""
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
        return _digest(self._key, f"{kind} {stamp}\n".encode("utf-8", "surrogateescape") + body)


def is_same(proof: str, expected: str) -> bool:
    """Compare two proofs in constant time."""
    return hmac.compare_digest(proof.encode("utf-8", "surrogateescape"), expected.encode())


def new_nonce() -> str:
    """Return a random nonce."""
    return secrets.token_hex(16)


def to_base64(key: bytes) -> str:
    """Return a key in the form that HAProxy's `hmac` reads."""
    return base64.b64encode(key).decode()


def _digest(key: bytes, message: bytes) -> str:
    return hmac.digest(key, message, "sha256").hex()
