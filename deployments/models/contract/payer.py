"""Who pays for a request, as an engine sees it: vLLM keeps the salt of a prefix cache with each request, of any kind.

The salt names the account, which cannot be guessed, with its share of an engine, and the client's own salt if it sent
one. The parts are joined by colons, which none of them holds.
"""

import hashlib


def render_salt(account: str, share: float, own: str | None) -> str:
    """Return the salt of an account with a share; narrowed to the client's `own` one, whatever that may hold."""
    salt = f"{account}:{share:g}"
    return salt if own is None else f"{salt}:{hashlib.sha256(own.encode()).hexdigest()[:32]}"


def payer_of(salt: str | None) -> tuple[str, float]:
    """Return the account and the share that a salt names."""
    account, _, rest = (salt or "").partition(":")
    share = rest.partition(":")[0]
    return account, float(share) if share else 1.0
