"""What every part of the configuration is made of."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, model_validator


class ConfigError(ValueError):
    """What is configured cannot be used; the message says what to change."""


class Section(BaseModel):
    """A part of the configuration: frozen, and a name it does not know is an error.

    `retired` has the names of settings that it once had, each with a sentence for the operator who still sets one.
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
