"""References: how a configuration names secrets and places without holding them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from deployments.config import ConfigError, Section


class EnvReference(Section):
    """The value of an environment variable, read when the service is built."""

    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    default: str | None = None


class FileReference(Section):
    """The content of a file, without white space around it; relative paths start at the working directory."""

    file: Path


Reference = EnvReference | FileReference


def follow(reference: Reference, environ: Mapping[str, str], name: str) -> str:
    """Return what a reference leads to; `name` is the field that holds it.

    Raises:
        ConfigError: it leads nowhere.
    """
    if isinstance(reference, EnvReference):
        value = environ.get(reference.env) or reference.default
        if not value:
            raise ConfigError(f"{name} is in the environment variable {reference.env}, which is not set.")
        return value
    try:
        return reference.file.expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name} is in the file {reference.file}, which cannot be read: {error}.") from None
