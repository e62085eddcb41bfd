"""Every operation, by name for the HTTP routes and by path for batch lines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from deployments.models.contract.engine import ModelDirectory
from deployments.operations import MODEL_OPERATIONS, Operation
from deployments.state.identity.principal import Principal
from serve_app.operations.chat import ChatOperation
from serve_app.operations.completions import CompletionOperation
from serve_app.operations.embeddings import EmbeddingOperation
from serve_app.operations.outcome import Cost, Outcome
from serve_app.operations.responses.operation import ResponseOperation
from serve_app.operations.responses.prompt.preparation import Preparation
from serve_app.operations.responses.storage.stores import Storage
from serve_app.operations.responses.tools.contract import BuiltIns
from serve_app.operations.routing import CacheSalt
from serve_app.operations.safety.policy import SafetyPolicy
from serve_app.schemas.base import OperationRequest

Body = TypeVar("Body", bound=OperationRequest)


class RunnableOperation(Protocol[Body]):
    """From a body of type `schema` to an answer that has not begun."""

    @property
    def name(self) -> Operation:
        """Which one it is."""
        ...

    @property
    def schema(self) -> type[Body]:
        """The wire model of its body."""
        ...

    def cost(self, body: Body, principal: Principal) -> Cost:
        """Return what a body may take.

        Raises:
            ApiError: this key may not use the model, or the model cannot do what the body asks.
        """
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
    responses: ResponseOperation | None = None

    def by_path(self) -> Mapping[str, RunnableOperation[Any]]:
        """Return the operations by the URL path, version included, under which clients know them."""
        made: list[RunnableOperation[Any]] = [self.chat, self.completions, self.embeddings]
        if self.responses is not None:
            made.append(self.responses)
        return {MODEL_OPERATIONS[operation.name].path: operation for operation in made}


def create_operations(
    directory: ModelDirectory,
    salt: CacheSalt,
    policies: Mapping[str, SafetyPolicy] | None = None,
    storage: Storage | None = None,
    built_ins: BuiltIns | None = None,
) -> Operations:
    """Return the operations over a model directory; `policies` are by model id.

    Without a `storage` there are no responses. `built_ins` are the tools that the service runs in a response.
    """
    chat = ChatOperation(directory, salt, policies)
    responses = None
    if storage is not None:
        responses = ResponseOperation(chat, Preparation(directory, storage, built_ins), storage, clock=storage.clock)
    return Operations(
        chat=chat,
        completions=CompletionOperation(directory, salt, policies),
        embeddings=EmbeddingOperation(directory, salt),
        responses=responses,
    )
