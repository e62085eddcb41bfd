"""From a model id to its engine, and the fields besides the body: cache salt and affinity.

Neither of these reveals an account or a prompt.
"""

import hashlib
import hmac
from collections.abc import Callable

from deployments.models.contract.engine import Engine, ModelCard, ModelDirectory, render_salt
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from deployments.state.identity.tiers import Tiers
from serve_app.errors.api import BadRequest, ModelNotFound, invalid_value
from serve_app.errors.nearest import LIKELY, closest_to
from serve_app.operations.scopes import may_see

CacheSalt = Callable[..., str]


def find_engine(directory: ModelDirectory, model: str, operation: Operation, principal: Principal) -> Engine:
    """Return the engine that answers for a model id or alias.

    Raises:
        ModelNotFound: there is no such model, or the key may not use it.
        BadRequest: the model does not offer the operation.
    """
    engine = directory.find(model)
    if engine is None or not may_see(principal, engine.card):
        raise model_not_found(directory, model, principal)
    if operation not in engine.card.operations:
        offered = ", ".join(f"'{name}'" for name in sorted(engine.card.operations))
        raise BadRequest(
            f"The model `{engine.card.id}` does not support the operation '{operation}'. It supports: {offered}.",
            param="model",
            code="unsupported_value",
        )
    return engine


def model_not_found(directory: ModelDirectory, model: str, principal: Principal) -> ModelNotFound:
    """Return the error for a model that the key cannot use; it suggests one that the key may see, if one is close."""
    seen = [name for card in directory.cards() if may_see(principal, card) for name in (card.id, *card.aliases)]
    return ModelNotFound(model, closest_to(model, seen, LIKELY))


def unsupported_parameter(name: str) -> BadRequest:
    """Return the error for a parameter that the model does not support."""
    return BadRequest(
        f"Unsupported parameter: '{name}' is not supported with this model.", param=name, code="unsupported_parameter"
    )


def check_max_tokens(name: str, num_tokens: int | None, card: ModelCard) -> None:
    """Raise BadRequest if more tokens are asked for, in the field of this name, than the model's context has."""
    if num_tokens is not None and num_tokens > card.max_model_len:
        raise invalid_value(
            f"{name} is too large: {num_tokens}. This model supports at most {card.max_model_len} tokens, the prompt "
            f"and the answer together.",
            name,
        )


def check_images(has_images: bool, card: ModelCard, param: str) -> None:
    """Raise BadRequest, which names `param`, if there are images and the model reads none."""
    if has_images and not card.has_images:
        raise invalid_value("Invalid content type. image_url is not supported with this model.", param)


def cache_salts(secret: bytes, tiers: Tiers | None = None) -> CacheSalt:
    """Return the function from a principal, and the client's own salt or None, to the salt of the prefix cache.

    Salts differ between accounts, and cannot be guessed without `secret`.
    """
    known = tiers or Tiers()

    def salt(principal: Principal, own: str | None = None) -> str:
        account = hmac.digest(secret, principal.account.encode(), "sha256").hex()[:32]
        return render_salt(account, known.of(principal.tier).share, own)

    return salt


def affinity_of(account: str, prefix: str) -> str:
    """Return a short digest of a prompt's prefix that differs between accounts."""
    digest = hashlib.blake2b(prefix.encode(), digest_size=8, key=hashlib.sha256(account.encode()).digest())
    return digest.hexdigest()
