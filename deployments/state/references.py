"""References: how a configuration names secrets and places without holding them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class StateError(ValueError):
    """The configured state cannot be used; the message says what to change."""


class Section(BaseModel):
    """A part of the configuration: frozen, and a name it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


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
        StateError: it leads nowhere.
    """
    if isinstance(reference, EnvReference):
        value = environ.get(reference.env) or reference.default
        if not value:
            raise StateError(f"{name} is in the environment variable {reference.env}, which is not set.")
        return value
    try:
        return reference.file.expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StateError(f"{name} is in the file {reference.file}, which cannot be read: {error}.") from None
