"""API key secrets: their format, and the digest under which they are stored."""

import hmac
import secrets

PREFIX = "sk-manta-"
_MAX_CHARS = 128


def create_secret() -> str:
    """Return a new secret of 256 random bits; it is shown once and not stored."""
    return PREFIX + secrets.token_urlsafe(32)


def can_be_secret(text: str) -> bool:
    """Return whether a text has the format of a secret."""
    return len(text) <= _MAX_CHARS and text.startswith(PREFIX) and text.isascii()


def digest_of(secret: str, pepper: bytes) -> bytes:
    """Return the 32 bytes under which a secret is stored and looked up: HMAC-SHA256 with the pepper."""
    return hmac.digest(pepper, secret.encode("utf-8", "surrogatepass"), "sha256")
