"""What fronts and ingress replicas of one service prove to each other, under keys that are derived from the pepper.

A front believes only an ingress that proves it belongs to the service: another program may listen on a port where an
ingress once did. An ingress takes a request's id over only from a front that signed it.
"""

import base64
import hmac
import re
import secrets

REQUEST_ID_HEADER = "x-manta-request-id"
PROOF_HEADER = "x-manta-proof"
NONCE_HEADER = "x-manta-nonce"
FROM_REGION_HEADER = "x-manta-from-region"
"""Says which region's front has sent a request on to another's: the region's name, the request id, and a signature of
both, joined by colons."""
FRONTS_PATH = "/-/manta/"
"""How the paths begin where fronts and gatekeepers are answered, each by a proof."""
QUESTION_PATH = f"{FRONTS_PATH}ingress"
"""Where an ingress replica answers the fronts."""

_SIGNED_ID = re.compile(rb"(req_[0-9a-f]{32}) ([0-9a-f]{64})")


class FrontTrust:
    """The keys of one service. `request_key` signs request ids, `proof_key` questions and answers."""

    def __init__(self, request_key: bytes, proof_key: bytes) -> None:
        self.request_key = request_key
        self.proof_key = proof_key

    @classmethod
    def from_pepper(cls, pepper: bytes) -> "FrontTrust":
        """Derive the keys."""
        return cls(hmac.digest(pepper, b"front request ids", "sha256"), hmac.digest(pepper, b"front proofs", "sha256"))

    def request_id_of(self, value: bytes) -> str | None:
        """Return the request id in a header that a front has signed, None for anything else."""
        found = _SIGNED_ID.fullmatch(value)
        if found is None:
            return None
        expected = hmac.digest(self.request_key, found[1], "sha256").hex().encode()
        return found[1].decode() if hmac.compare_digest(expected, found[2]) else None

    def prove_question(self, nonce: str) -> str:
        """Return the proof that a question with this nonce comes from a front."""
        return self._prove(b"question", nonce, b"")

    def prove_answer(self, nonce: str, body: bytes) -> str:
        """Return the proof that a body answers the question with this nonce."""
        return self._prove(b"answer", nonce, body)

    def _prove(self, kind: bytes, nonce: str, body: bytes) -> str:
        return hmac.digest(self.proof_key, b"%s %s " % (kind, nonce.encode()) + body, "sha256").hex()


def is_same(proof: str, expected: str) -> bool:
    """Return whether two proofs are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(proof.encode(), expected.encode())


def new_nonce() -> str:
    """Return what makes a question different from every other."""
    return secrets.token_hex(16)


def to_base64(key: bytes) -> str:
    """Return a key as HAProxy's `hmac` wants it."""
    return base64.b64encode(key).decode()
