"""Every operation, by name for the HTTP routes and by path for batch lines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from deployments.models.engine import ModelDirectory
from deployments.state.protocol import Principal
from serve_app.operations.chat import ChatOperation
from serve_app.operations.completions import CompletionOperation
from serve_app.operations.embeddings import EmbeddingOperation
from serve_app.operations.outcome import Outcome
from serve_app.operations.routing import CacheSalt
from serve_app.operations.safety import SafetyPolicy
from serve_app.schemas.base import WireModel

Body = TypeVar("Body", bound=WireModel)


class Operation(Protocol[Body]):
    """From a body of type `schema` to an answer that has not begun."""

    @property
    def name(self) -> str:
        """What model cards and key scopes call it."""
        ...

    @property
    def schema(self) -> type[Body]:
        """The wire model of its body."""
        ...

    def run(self, body: Body, raw: bytes, principal: Principal, *, request_id: str, priority: int = 0) -> Outcome:
        """Return the answer to a body; `raw` are the bytes that it was parsed from.

        Raises:
            ApiError: this key may not use the model, or the model cannot do what the body asks.
        """
        ...


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of this service."""

    chat: ChatOperation
    completions: CompletionOperation
    embeddings: EmbeddingOperation

    def by_path(self) -> Mapping[str, Operation[Any]]:
        """Return the operations by the URL path, version included, under which clients know them."""
        return {
            "/v1/chat/completions": self.chat,
            "/v1/completions": self.completions,
            "/v1/embeddings": self.embeddings,
        }


def create_operations(
    directory: ModelDirectory, salt: CacheSalt, policies: Mapping[str, SafetyPolicy] | None = None
) -> Operations:
    """Return the operations over a model directory; `policies` are by model id."""
    return Operations(
        chat=ChatOperation(directory, salt, policies),
        completions=CompletionOperation(directory, salt, policies),
        embeddings=EmbeddingOperation(directory, salt),
    )
