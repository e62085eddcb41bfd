"""The scopes of a key: the operations and models that it may use, and the admin keys that it may issue.

HTTP requests, batch lines, tools and console pages all check them here.
"""

from fnmatch import fnmatchcase

from deployments.models.contract.engine import ModelCard
from deployments.operations import Operation
from deployments.state.identity.keys import ApiKey, NewKey
from deployments.state.identity.principal import Principal
from serve_app.errors.api import PermissionDenied


def check_operation(principal: Principal, operation: Operation) -> None:
    """Raise PermissionDenied unless the key's scopes include the operation."""
    if principal.operations is not None and operation not in principal.operations:
        raise PermissionDenied(
            f"This API key does not have permission to use '{operation}'. Use a key with that scope, or ask the "
            "operator to add it.",
            code="insufficient_permissions",
        )


def may_see(principal: Principal, card: ModelCard) -> bool:
    """Return whether the key's scopes and its account allow a model or an adapter."""
    return may_use_model(principal, card.id) and (card.accounts is None or principal.account in card.accounts)


def may_use_model(principal: Principal, model_id: str) -> bool:
    """Return whether the key's scopes allow the model; otherwise it is hidden from the key."""
    return principal.models is None or any(fnmatchcase(model_id, pattern) for pattern in principal.models)


def within(principal: Principal, new: NewKey) -> NewKey:
    """Return a key to be issued. An admin key gets the expiry and the regions of `principal` where it names none.

    Raises:
        PermissionDenied: it is an admin key that would outlive `principal`, or be for other regions.
    """
    if not new.is_admin:
        return new
    given = new.model_fields_set
    own = {"expires_at": principal.expires_at, "regions": principal.regions}
    new = new.model_copy(update={name: value for name, value in own.items() if name not in given})
    check_within(principal, new)
    return new


def check_within(principal: Principal, key: NewKey | ApiKey) -> None:
    """Raise PermissionDenied if an admin key lasts longer, or has other regions, than `principal`."""
    if not key.is_admin:
        return
    if principal.expires_at is not None and (key.expires_at is None or key.expires_at > principal.expires_at):
        raise PermissionDenied("Your API key expires, so it cannot be used for an admin key that lasts longer.")
    if principal.regions is not None and not set(key.regions or ("",)) <= set(principal.regions):
        raise PermissionDenied("Your API key is bound to regions, so it cannot be used for an admin key of others.")
