"""The scopes of a key: the operations and models that it may use, and the keys that it may issue or change.

HTTP requests, batch lines, tools and console pages all check them here.
"""

from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

from deployments.models.contract.engine import ModelCard
from deployments.operations import Operation
from deployments.state.identity.keys import ApiKey, NewKey
from deployments.state.identity.principal import RETENTIONS, Principal, Retention
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
    """Return a key to be issued. Where it names no value of its own, it gets that of `principal`.

    Raises:
        PermissionDenied: it would allow more than `principal` may give, see `check_within`.
    """
    own = {name: getattr(principal, name) for name in _bounds_of(principal, new) if name not in new.model_fields_set}
    if own.get("operations") is not None:
        own["operations"] = tuple(sorted(own["operations"]))
    new = new.model_copy(update=own)
    check_within(principal, new)
    return new


def check_within(principal: Principal, key: NewKey | ApiKey) -> None:
    """Check that a key allows no more than `principal` may give.

    An admin key may give anything to ordinary keys, and to admin keys no more than its own expiry and regions. An
    ordinary key may give what it has itself, to keys of its own account.

    Raises:
        PermissionDenied: the key allows more; the message says in what.
    """
    if not principal.is_admin and (key.is_admin or key.account != principal.account):
        raise PermissionDenied("Your API key can only be used for ordinary keys of its own account.")
    for name, (is_within, reason) in _bounds_of(principal, key).items():
        if not is_within(getattr(key, name), getattr(principal, name)):
            raise PermissionDenied(f"Your API key {reason}.", param=name)


_Bound = tuple[Callable[[Any, Any], bool], str]


def _bounds_of(principal: Principal, key: NewKey | ApiKey) -> Mapping[str, _Bound]:
    """Return the fields in which a key may not exceed `principal`, with the check and the reason of each."""
    if not principal.is_admin:
        return {**_TIME_AND_PLACE, **_REACH}
    return _TIME_AND_PLACE if key.is_admin else {}


def _at_most(value: float | None, own: float | None) -> bool:
    return own is None or (value is not None and value <= own)


def _is_covered(values: Collection[str] | None, own: Collection[str] | None) -> bool:
    return own is None or (values is not None and set(values) <= set(own))


def _are_covered_models(patterns: Collection[str] | None, own: Collection[str] | None) -> bool:
    """Return whether all models of `patterns` are among those of `own`. A pattern is covered only by an equal one."""
    if own is None or patterns is None:
        return own is None
    return all(
        one in own or (not set(one) & set("*?[") and any(fnmatchcase(one, pattern) for pattern in own))
        for one in patterns
    )


def _keeps_no_more(retention: Retention, own: Retention) -> bool:
    return RETENTIONS.index(retention) <= RETENTIONS.index(own)


_TIME_AND_PLACE: Mapping[str, _Bound] = {
    "expires_at": (_at_most, "expires, so it cannot be used for a key that lasts longer"),
    "regions": (_is_covered, "is bound to regions, so it cannot be used for a key of others"),
}
_REACH: Mapping[str, _Bound] = {
    "tier": (str.__eq__, "cannot be used for a key of another tier"),
    "requests_per_minute": (_at_most, "cannot be used for a key with more requests per minute than its own"),
    "tokens_per_minute": (_at_most, "cannot be used for a key with more tokens per minute than its own"),
    "operations": (_is_covered, "cannot be used for a key with other operations than its own"),
    "models": (_are_covered_models, "cannot be used for a key with other models than its own"),
    "retention": (_keeps_no_more, "cannot be used for a key that stores more than its own, or for longer"),
}
