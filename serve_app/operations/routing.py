"""From a model id to its engine, and the fields that an engine gets beside the body: cache salt and affinity.

Every operation calls it. Neither field reveals an account or a prompt.
"""

import hashlib
import hmac
from collections.abc import Callable

from deployments.models.contract.engine import Engine, ModelDirectory
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from serve_app.errors.api import BadRequest, ModelNotFound
from serve_app.operations.scopes import may_see

CacheSalt = Callable[[str], str]


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


def cache_salts(secret: bytes) -> CacheSalt:
    """Return the function from an account to the salt of its prefix cache; it cannot be guessed without `secret`."""

    def salt(account: str) -> str:
        return hmac.digest(secret, account.encode(), "sha256").hex()[:32]

    return salt


def salt_of(salt: str, own: str | None) -> str:
    """Return the salt of an account, narrowed to the caller's own one where there is one.

    It is never that of another account, whatever the caller sends.
    """
    return salt if own is None else hashlib.sha256(f"{salt}{own}".encode()).hexdigest()[:32]


def affinity_of(account: str, prefix: str) -> str:
    """Return a short name for a prompt's prefix that reveals nothing of it and differs between accounts."""
    digest = hashlib.blake2b(prefix.encode(), digest_size=8, key=hashlib.sha256(account.encode()).digest())
    return digest.hexdigest()
