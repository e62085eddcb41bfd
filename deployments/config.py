"""What every part of the configuration is made of."""

from pydantic import BaseModel, ConfigDict


class ConfigError(ValueError):
    """What is configured cannot be used; the message says what to change."""


class Section(BaseModel):
    """A part of the configuration: frozen, and a name it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
