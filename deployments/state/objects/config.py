"""The settings of the object store: a directory, or a bucket by its URL."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from deployments.config import ConfigError, Reference, Section, follow

Copies = Literal["both", "later", "provider"]

_SCHEMES = ("file", "s3", "gs")


class PlaceConfig(Section):
    """A directory or a bucket. Without credentials, those of the machine are used: its role, or the provider's own.

    Args:
        name: what the store is called in the database. A store that is in use keeps its name.
        url: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or file:///DIRECTORY.
        endpoint: the address of an S3-compatible service other than Amazon's.
        region: the bucket's region.
        access_key_id, secret_access_key: the credentials for S3.
        service_account: the credentials for Google Cloud Storage.
        timeout_s: how long one request to the object store may take.
    """

    name: Annotated[str, Field(pattern="^[a-z0-9-]{1,16}$")] = "files"
    url: str | Reference | None = None
    endpoint: str | None = None
    region: str | None = None
    access_key_id: Reference | None = None
    secret_access_key: Reference | None = None
    service_account: Reference | None = None
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 20.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if isinstance(self.url, str):
            check_object_url(self.url)
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("access_key_id and secret_access_key go together")
        return self


class OtherPlaceConfig(PlaceConfig):
    """The second store, with the same content: a bucket elsewhere."""

    url: str | Reference = Field()


class ObjectStoreConfig(PlaceConfig):
    """Where the content of files and batches is kept, encrypted: a directory or a bucket.

    Without credentials, those of the machine are used: its role, or the provider's own variables.

    Args:
        url: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or file:///DIRECTORY. By default a directory in the state directory.
        other: a second store with the same content, for the case that the first is lost.
        copies: with `other`, when an object counts as written: `both` stores have it, or one and a note in the
            database; `later`: this store and the note; `provider`: this store, the provider copies.
    """

    other: OtherPlaceConfig | None = None
    copies: Copies = "both"

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if self.other is not None and self.other.name == self.name:
            raise ValueError("object_store.other needs another name than object_store")
        return self


@dataclass(frozen=True)
class ResolvedObjectStore:
    """An `ObjectStoreConfig` with its references followed; `options` have obstore's names and may hold secrets."""

    url: str
    timeout_s: float = 20.0
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = "files"
    other: "ResolvedObjectStore | None" = None
    copies: Copies = "both"


def resolve_object_store(config: ObjectStoreConfig, state_dir: Path, environ: Mapping[str, str]) -> ResolvedObjectStore:
    """Follow the references of `config`.

    Raises:
        ConfigError: a reference leads nowhere, or its value cannot be used.
    """
    near = _resolve_place(config, "object_store", state_dir, environ)
    if config.other is None:
        return near
    far = _resolve_place(config.other, "object_store.other", state_dir, environ)
    return replace(near, other=far, copies=config.copies)


def _resolve_place(
    config: PlaceConfig, field_name: str, state_dir: Path, environ: Mapping[str, str]
) -> ResolvedObjectStore:
    url = config.url
    if url is None:
        return ResolvedObjectStore((state_dir / "objects").as_uri(), config.timeout_s, name=config.name)
    text = url if isinstance(url, str) else follow(url, environ, f"{field_name}.url")
    scheme = check_object_url(text)
    options: dict[str, str] = {}
    if scheme == "s3":
        secrets = {"access_key_id": config.access_key_id, "secret_access_key": config.secret_access_key}
        options = {k: v for k, v in {"endpoint": config.endpoint, "region": config.region}.items() if v is not None}
    else:
        secrets = {"service_account_key": config.service_account} if scheme == "gs" else {}
    for name, reference in secrets.items():
        if reference is not None:
            options[name] = follow(reference, environ, f"{field_name}.{name}")
    return ResolvedObjectStore(text, config.timeout_s, options, config.name)


def check_object_url(url: str) -> str:
    """Return the scheme of an object store's URL.

    Raises:
        ConfigError: its kind is not supported, or it carries a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not (parts.netloc or parts.path.strip("/")):
        raise ConfigError("object_store.url is not of the form s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or file:///PATH.")
    if parts.password:
        raise ConfigError("object_store.url carries a password: refer to the credentials instead.")
    return parts.scheme
