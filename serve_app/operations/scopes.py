"""The scopes of a key: the operations and the models that it may use.

Routes, batch lines and tools check them here, so that a key can do the same at both doors.
"""

from fnmatch import fnmatchcase

from deployments.models.contract.engine import ModelCard
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from serve_app.errors.api import PermissionDenied


def check_operation(principal: Principal, operation: Operation) -> None:
    """Check that the key may use the operation.

    Raises:
        PermissionDenied: its scopes leave the operation out.
    """
    if principal.operations is not None and operation not in principal.operations:
        raise PermissionDenied(
            f"This API key does not have permission to use '{operation}'. Use a key with that scope, or ask the "
            "operator to add it.",
            code="insufficient_permissions",
        )


def may_see(principal: Principal, card: ModelCard) -> bool:
    """Return whether a model or an adapter exists for this key: its scopes and its account allow it."""
    return may_use_model(principal, card.id) and (card.accounts is None or principal.account in card.accounts)


def may_use_model(principal: Principal, model_id: str) -> bool:
    """Return whether the key's scopes allow the model; otherwise it does not exist for this key."""
    return principal.models is None or any(fnmatchcase(model_id, pattern) for pattern in principal.models)
