"""Regions: clusters that serve the same accounts from one database."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class ResolvedRegion:
    """A region and the addresses of the others, as URLs without a path: a `RegionConfig` with its references followed.

    `certificate_authority` is the PEM file of the authorities trusted for the other regions, None for the system's. It
    is not in `config`, because the front's processes do not load pydantic.
    """

    name: str
    others: Mapping[str, str] = field(default_factory=dict)
    certificate_authority: Path | None = None
