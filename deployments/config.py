"""The parts of every configuration: sections, and references to secrets and places."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ConfigError(ValueError):
    """The configuration cannot be used; the message says what to change."""


class Section(BaseModel):
    """A part of the configuration. It is frozen, and an unknown name is an error.

    `retired` has the names of former settings, each with advice for an operator who still sets one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    retired: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _refuse_retired(cls, values: object) -> object:
        if isinstance(values, Mapping):
            for name, advice in cls.retired.items():
                if name in values:
                    raise ValueError(f"the setting {name} is gone: {advice}")
        return values


class EnvReference(Section):
    """The value of an environment variable, read when the service is built.

    Args:
        env: the name of the variable.
        default: the value if the variable is not set.
    """

    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    default: str | None = None


class FileReference(Section):
    """The content of a file, without white space around it.

    Args:
        file: the path of the file; a relative one starts at the working directory.
    """

    file: Path


Reference = EnvReference | FileReference


def follow(reference: Reference, environ: Mapping[str, str], name: str) -> str:
    """Return the value of the reference in the field `name`.

    Raises:
        ConfigError: the variable is not set, or the file cannot be read.
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
