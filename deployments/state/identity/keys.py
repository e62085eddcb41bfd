"""What an API key is: what may be asked for, what may be shown, what the gatekeeper holds. All values, no storage."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from deployments.config import Section
from deployments.operations import Operation
from deployments.state.identity.principal import Principal, Retention
from deployments.state.identity.tiers import RequestsPerMinute, TierName, Tiers, TokensPerMinute

_Label = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@-]*$")]
_Pattern = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[\x21-\x7e]+$")]


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("only printable characters are allowed")
    return text


def _as_tuple(value: Any) -> Any:
    """Let lists and sets through; a lone string is most likely a forgotten bracket, which must not become letters."""
    return tuple(sorted(value)) if isinstance(value, set | frozenset) else value


_Scope = Annotated[Operation, WithJsonSchema({"type": "string", "enum": [operation.value for operation in Operation]})]
_Operations = Annotated[tuple[_Scope, ...], BeforeValidator(_as_tuple), Field(min_length=1, max_length=len(Operation))]
_Models = Annotated[tuple[_Pattern, ...], BeforeValidator(_as_tuple), Field(min_length=1, max_length=100)]


class KeyChange(Section):
    """What an operator may set on a key: limits, scopes, expiry, retention. Only fields that were set are changed.

    None for a limit means the tier's, for a scope that there is none, for `expires_at` that it never expires.
    """

    name: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_printable)] = "unnamed"
    tier: TierName = "free"
    requests_per_minute: RequestsPerMinute | None = None
    tokens_per_minute: TokensPerMinute | None = None
    operations: _Operations | None = None
    models: _Models | None = None
    retention: Retention = "ephemeral"
    expires_at: Annotated[float, Field(gt=0, lt=1e11, allow_inf_nan=False)] | None = None


class NewKey(KeyChange):
    """A key to be issued. `organization` is the account's public name; where it is not given, the account."""

    account: _Label = "default"
    organization: _Label = Field(default_factory=str)  # The account, where it is not given.
    is_admin: bool = False

    @model_validator(mode="before")
    @classmethod
    def _name_organization(cls, values: Any) -> Any:
        if isinstance(values, dict) and not values.get("organization"):
            values = {**values, "organization": values.get("account", "default")}
        return values

    @model_validator(mode="after")
    def _check_admin(self) -> Self:
        if self.is_admin and (self.operations or self.models):
            raise ValueError("an admin key has no operation or model scopes")
        return self


@dataclass(frozen=True)
class ApiKey:
    """A key as it may be shown: everything but its secret. The limits are those that hold, the tier's or its own."""

    key_id: str
    name: str
    account: str
    organization: str
    tier: str
    requests_per_minute: int
    tokens_per_minute: int
    operations: tuple[str, ...] | None
    models: tuple[str, ...] | None
    retention: Retention
    is_admin: bool
    display: str
    created_at: float
    rotated_at: float | None
    previous_expires_at: float | None
    revoked_at: float | None
    expires_at: float | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any], tiers: Tiers) -> Self:
        """Read a row of `api_keys`. A tier without limits, or gone, leaves a key without its own with the least."""
        limits = tiers.of(row["tier"])
        own_requests, own_tokens = row["requests_per_minute"], row["tokens_per_minute"]
        return cls(
            key_id=row["key_id"],
            name=row["name"],
            account=row["account"],
            organization=row["organization"],
            tier=row["tier"],
            requests_per_minute=own_requests if own_requests is not None else limits.requests_per_minute or 1,
            tokens_per_minute=own_tokens if own_tokens is not None else limits.tokens_per_minute or 1,
            operations=None if row["operations"] is None else tuple(row["operations"]),
            models=None if row["models"] is None else tuple(row["models"]),
            retention=row["retention"],
            is_admin=row["is_admin"],
            display=f"{row['prefix']}...{row['last_four']}",
            created_at=row["created_at"],
            rotated_at=row["rotated_at"],
            previous_expires_at=row["previous_expires_at"],
            revoked_at=row["revoked_at"],
            expires_at=row["expires_at"],
        )

    def status(self, now: float) -> Literal["active", "expired", "revoked"]:
        """Return whether the key is accepted at `now`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"


@dataclass(frozen=True)
class StoredKey:
    """A key as the gatekeeper holds it: who it stands for, by which digests, and until when each is accepted."""

    revision: int
    key_id: str
    digest: bytes
    previous_digest: bytes | None
    previous_expires_at: float | None
    principal: Principal | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any], tiers: Tiers) -> Self:
        """Read a row of `api_keys`; a revoked key stands for nobody."""
        key = ApiKey.from_row(row, tiers)
        principal = None
        if key.revoked_at is None:
            principal = Principal(
                key_id=key.key_id,
                account=key.account,
                organization=key.organization,
                tier=key.tier,
                requests_per_minute=key.requests_per_minute,
                tokens_per_minute=key.tokens_per_minute,
                operations=None if key.operations is None else frozenset(key.operations),
                models=key.models,
                retention=key.retention,
                expires_at=key.expires_at,
                is_admin=key.is_admin,
            )
        return cls(
            row["revision"], key.key_id, row["digest"], row["previous_digest"], row["previous_expires_at"], principal
        )


def explain(error: ValidationError) -> str:
    """Return what is wrong with a NewKey or KeyChange, one sentence per field, without repeating the values."""
    sentences = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        place = ".".join(str(part) for part in problem["loc"]) or "key"
        sentences.append(f"{place}: {problem['msg'].removeprefix('Value error, ')}.")
    return " ".join(sentences)
