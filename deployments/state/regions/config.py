"""The settings of a region, and the addresses of the others."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from deployments.config import ConfigError, EnvReference, Reference, Section, follow
from deployments.state.regions import ResolvedRegion

RegionName = Annotated[str, Field(pattern="^[a-z][a-z0-9-]{0,15}$")]


class OtherRegionConfig(Section):
    """Another region.

    Args:
        address: https://HOST or https://HOST:PORT, where the other region's fronts are reached.
        allow_http: whether the address may be http://, which nothing encrypts: for tests, or a link that is encrypted.
    """

    address: str | Reference
    allow_http: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if isinstance(self.address, str):
            parse_address(self.address, allow_http=self.allow_http)
        return self


class RegionConfig(Section):
    """One of several clusters that share a database. Without the section, the cluster is the only one.

    Args:
        name: what the region is called. It is in the database: a region that is in use keeps its name.
        others: the other regions, by name.
        certificate_authority: a PEM file with the certificates that the other regions' certificates are checked
            against, instead of the machine's own.
    """

    name: RegionName
    others: dict[RegionName, OtherRegionConfig] = {}
    certificate_authority: Path | EnvReference | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name in self.others:
            raise ValueError(f"region.others lists {self.name}, which is this region")
        return self


def resolve_region(config: RegionConfig, environ: Mapping[str, str] | None = None) -> ResolvedRegion:
    """Follow the references of `config`.

    Raises:
        ConfigError: a reference has no value, or its value cannot be used.
    """
    environ = os.environ if environ is None else environ
    others = {}
    for name, other in config.others.items():
        text = other.address
        if not isinstance(text, str):
            text = follow(text, environ, f"region.others.{name}.address")
        others[name] = parse_address(text, allow_http=other.allow_http)
    authority = config.certificate_authority
    if isinstance(authority, EnvReference):
        authority = Path(follow(authority, environ, "region.certificate_authority"))
    if authority is not None:
        authority = authority.expanduser().absolute()
        _check_authority(authority)
    return ResolvedRegion(config.name, others, authority)


def parse_address(text: str, *, allow_http: bool) -> str:
    """Return the base address of a region: scheme, host and port.

    Raises:
        ConfigError: it has another form, or is not encrypted although it must be.
    """
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
        parts = urlsplit("")
    is_base = parts.path in ("", "/") and not parts.query and not parts.fragment and "@" not in parts.netloc
    if parts.scheme not in ("http", "https") or not host or not is_base:
        raise ConfigError("A region's address is not of the form https://HOST or https://HOST:PORT.")
    if parts.scheme == "http" and not allow_http:
        raise ConfigError("A region's address is http://, which nothing encrypts: use https://, or set allow_http.")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else "")


def _check_authority(path: Path) -> None:
    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise ConfigError(f"region.certificate_authority {path} holds no certificates in PEM.") from None
    except OSError as error:
        raise ConfigError(f"region.certificate_authority {path} cannot be read: {error.strerror}.") from None
