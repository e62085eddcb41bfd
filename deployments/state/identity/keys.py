"""API keys as values: requested, shown, and held by the gatekeeper; and their secrets. No storage."""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from deployments.config import Section
from deployments.operations import Operation
from deployments.state.database.queries import columns_for
from deployments.state.identity.principal import Principal, Retention, principal_of
from deployments.state.identity.tiers import RequestsPerMinute, TierName, Tiers, TokensPerMinute

_Label = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@-]*$")]
_Pattern = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[\x21-\x7e]+$")]


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("may hold only printable characters")
    return text


def _as_tuple(value: Any) -> Any:
    """Accept lists and sets. A single string is most likely a forgotten bracket, and must not become letters."""
    return tuple(sorted(value)) if isinstance(value, set | frozenset) else value


_Scope = Annotated[Operation, WithJsonSchema({"type": "string", "enum": [operation.value for operation in Operation]})]
_Operations = Annotated[tuple[_Scope, ...], BeforeValidator(_as_tuple), Field(min_length=1, max_length=len(Operation))]
_Region = Annotated[str, Field(pattern="^[a-z][a-z0-9-]{0,15}$")]
_Regions = Annotated[tuple[_Region, ...], BeforeValidator(_as_tuple), Field(min_length=1, max_length=16)]
_Models = Annotated[tuple[_Pattern, ...], BeforeValidator(_as_tuple), Field(min_length=1, max_length=100)]


class KeyChange(Section):
    """A change of a key: limits, scopes, expiry, retention. Only fields that were set are changed.

    None is the tier's limit as a limit, no restriction as a scope or as `regions`, and no expiry as `expires_at`.

    Args:
        name: a name for the key.
        tier: the tier, which sets the limits.
        requests_per_minute: the key's own limit of requests; null is the tier's.
        tokens_per_minute: the key's own limit of tokens; null is the tier's.
        operations: the operations that the key may use; null is all.
        models: the models that the key may use, as ids or patterns with `*`; null is all.
        regions: the regions that accept the key; null is all.
        retention: what is stored of the key's content. `strict` stores nothing, `ephemeral` keeps it for a day,
            `stored` for 30 days, and `logged` also keeps chats whose requests do not ask for that.
        expires_at: when the key expires, in Unix seconds; null is never.
    """

    example: ClassVar[dict[str, Any]] = {"requests_per_minute": 600}

    name: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_printable)] = "unnamed"
    tier: TierName = "free"
    requests_per_minute: RequestsPerMinute | None = None
    tokens_per_minute: TokensPerMinute | None = None
    operations: _Operations | None = None
    models: _Models | None = None
    regions: _Regions | None = None
    retention: Retention = "ephemeral"
    expires_at: Annotated[float, Field(gt=0, lt=1e11, allow_inf_nan=False)] | None = None


class NewKey(KeyChange):
    """A key to be issued. `organization` is the account's public name, by default the account itself.

    Args:
        account: the account that the key belongs to.
        organization: the account's public name. Left out, the account.
        is_admin: whether the key may use the routes below `/v1/organization`.
    """

    example: ClassVar[dict[str, Any]] = {"name": "my app", "account": "acme"}

    account: _Label = "default"
    organization: _Label = Field(default_factory=str)
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
    """A key that may be shown, without its secret. Its limits are its own or, without any, its tier's."""

    key_id: str
    name: str
    account: str
    organization: str
    tier: str
    requests_per_minute: int
    tokens_per_minute: int
    operations: tuple[str, ...] | None
    models: tuple[str, ...] | None
    regions: tuple[str, ...] | None
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
        """Return the key of a row. A limit is 1 if neither the key nor its tier has one, or the tier is gone."""
        limits = tiers.of(row["tier"])
        own_requests, own_tokens = row["requests_per_minute"], row["tokens_per_minute"]
        changed = {
            "requests_per_minute": own_requests if own_requests is not None else limits.requests_per_minute or 1,
            "tokens_per_minute": own_tokens if own_tokens is not None else limits.tokens_per_minute or 1,
            "operations": None if row["operations"] is None else tuple(row["operations"]),
            "models": None if row["models"] is None else tuple(row["models"]),
            "regions": None if row["regions"] is None else tuple(row["regions"]),
            "display": f"{row['prefix']}...{row['last_four']}",
        }
        return cls(**columns_for(cls, row) | changed)

    def status(self, now: float) -> Literal["active", "expired", "revoked"]:
        """Return whether the key is accepted at `now`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"


@dataclass(frozen=True, slots=True)
class Account:
    """An account as its keys show it: how many it has and how many were revoked, and since when (Unix seconds)."""

    name: str
    num_keys: int
    num_revoked: int
    created_at: float


@dataclass(frozen=True)
class StoredKey:
    """A key for the gatekeeper: its principal, its digests, and how long the previous one is accepted."""

    revision: int
    key_id: str
    digest: bytes
    previous_digest: bytes | None
    previous_expires_at: float | None
    principal: Principal | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any], tiers: Tiers) -> Self:
        """Return the key of a row; a revoked key has no principal."""
        key = ApiKey.from_row(row, tiers)
        principal = None
        if key.revoked_at is None:
            same = {field.name: getattr(key, field.name) for field in fields(Principal)}
            principal = principal_of(same)
        return cls(
            row["revision"], key.key_id, row["digest"], row["previous_digest"], row["previous_expires_at"], principal
        )


PREFIX = "sk-manta-"
_MAX_CHARS = 128


def create_secret() -> str:
    """Return a new secret of 256 random bits, which is shown once and not stored."""
    return PREFIX + secrets.token_urlsafe(32)


def can_be_secret(text: str) -> bool:
    """Return whether a text has the format of a secret."""
    return len(text) <= _MAX_CHARS and text.startswith(PREFIX) and text.isascii()


def digest_of(secret: str, pepper: bytes) -> bytes:
    """Return the 32 bytes under which a secret is stored and looked up: HMAC-SHA256 with the pepper."""
    return hmac.digest(pepper, secret.encode("utf-8", "surrogatepass"), "sha256")
