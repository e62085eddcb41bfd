"""What the built-in tools that clients run share: to the model each is one strict function, always the same."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from serve_app.schemas.base import WireModel
from serve_app.schemas.responses.functions import ClientBuiltIn, ClientFunction, FunctionTool
from serve_app.schemas.tools import JsonSchema

STRING: JsonSchema = {"type": "string"}
MAYBE_INTEGER: JsonSchema = {"type": ["integer", "null"]}


class FixedTool(ClientBuiltIn):
    """A tool whose function is the same in every request."""

    def functions(self, at: str) -> Iterator[ClientFunction]:
        """Yield the one function."""
        tool = FunctionTool(
            type="function", name=self.called, description=self.explain(), parameters=self.arguments(), strict=True
        )
        yield ClientFunction(self.called, tool, None, at, built_in=type(self))

    @abstractmethod
    def explain(self) -> str:
        """Return the function's description."""

    @abstractmethod
    def arguments(self) -> JsonSchema:
        """Return the JSON schema of the function's arguments."""


def read_as(kind: type[WireModel], arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return arguments with every field of their kind, None if they do not fit."""
    try:
        return kind.model_validate(arguments).model_dump()
    except ValidationError:
        return None
