"""From a model id to its engine, and the fields that an engine gets beside the body: cache salt and affinity.

Every operation calls it. Neither field reveals an account or a prompt.
"""

import hashlib
import hmac
from collections.abc import Callable

from deployments.models.contract.engine import Engine, ModelDirectory
from deployments.models.contract.payer import render_salt
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from deployments.state.identity.tiers import Tiers
from serve_app.errors.api import BadRequest, ModelNotFound
from serve_app.operations.scopes import may_see

CacheSalt = Callable[..., str]


def find_engine(directory: ModelDirectory, model: str, operation: Operation, principal: Principal) -> Engine:
    """Return the engine that answers for a model id or alias.

    Raises:
        ModelNotFound: there is no such model, or the key may not know of it.
        BadRequest: the model is there, but for other operations.
    """
    engine = directory.find(model)
    if engine is None or not may_see(principal, engine.card):
        raise ModelNotFound(model)
    if operation not in engine.card.operations:
        offered = ", ".join(f"'{name}'" for name in sorted(engine.card.operations))
        raise BadRequest(
            f"The model `{engine.card.id}` does not support the operation '{operation}'. It supports: {offered}.",
            param="model",
            code="unsupported_value",
        )
    return engine


def unsupported_parameter(name: str) -> BadRequest:
    """Return the refusal of a parameter that the model cannot honour."""
    return BadRequest(
        f"Unsupported parameter: '{name}' is not supported with this model.", param=name, code="unsupported_parameter"
    )


def cache_salts(secret: bytes, tiers: Tiers | None = None) -> CacheSalt:
    """Return the function from a key's holder, and the client's own salt or None, to the salt of a prefix cache.

    It names the holder's account, and cannot be guessed without `secret`; no other salt is another account's.
    """
    known = tiers or Tiers()

    def salt(principal: Principal, own: str | None = None) -> str:
        account = hmac.digest(secret, principal.account.encode(), "sha256").hex()[:32]
        return render_salt(account, known.of(principal.tier).share, own)

    return salt


def affinity_of(account: str, prefix: str) -> str:
    """Return a short name for a prompt's prefix that reveals nothing of it and differs between accounts."""
    digest = hashlib.blake2b(prefix.encode(), digest_size=8, key=hashlib.sha256(account.encode()).digest())
    return digest.hexdigest()
