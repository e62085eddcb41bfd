"""The search for tools as a tool of a response. The client searches, or the service does."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

from pydantic import model_validator

from serve_app.schemas.base import refusal
from serve_app.schemas.json_schema import object_schema
from serve_app.schemas.responses.functions import ClientBuiltIn, ClientFunction, FunctionTool
from serve_app.schemas.tools import JsonSchema


class ToolSearchTool(ClientBuiltIn):
    """Finds the tools that `defer_loading` hides: the service searches, or the client does.

    Args:
        execution: `server`, the default, searches the deferred functions of the request. With `client`, calls of the
            search go to the client, which answers with a `tool_search_output`.
        description: what the search is for, for the model. Only with `client`.
        parameters: a JSON schema of the arguments. Only with `client`.
    """

    called = "tool_search"
    call_type = "tool_search_call"
    id_prefix = "tsc"
    type: Literal["tool_search"]
    execution: Literal["server", "client"] | None = None
    description: str | None = None
    parameters: JsonSchema | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("description", "parameters") if self.execution != "client" else ():
            if getattr(self, name) is not None:
                raise refusal(
                    "invalid_parameter_combination",
                    "Invalid '{param}': the service's own search has none. Leave it out, or set 'execution' to "
                    "'client' and answer the calls.",
                    f".{name}",
                )
        return self

    @property
    def is_hosted(self) -> bool:
        """Whether the service searches."""
        return self.execution != "client"

    def functions(self, at: str) -> Iterator[ClientFunction]:
        """Yield the function, unless the service runs it."""
        if self.is_hosted:
            return
        parameters = self.parameters or search_schema()
        description = self.description or "Finds tools by a description of what they should do."
        tool = FunctionTool(type="function", name=self.called, description=description, parameters=parameters)
        yield ClientFunction(self.called, tool, None, at, built_in=type(self))

    @classmethod
    def read_call(cls, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the arguments, whatever they are."""
        return {"execution": "client", "arguments": dict(arguments)}

    @classmethod
    def show_call(cls, item: Mapping[str, Any]) -> Any:
        """Return the arguments."""
        return item.get("arguments")


def search_schema() -> JsonSchema:
    """Return the JSON schema of a call of the search."""
    query = {"type": "string", "description": "Words that say what a tool should do."}
    return object_schema({"query": query})
