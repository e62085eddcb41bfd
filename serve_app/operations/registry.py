"""Every operation, by name for the HTTP routes and by path for batch lines.

An operation that engines run is found by its name: `OPERATION` in `serve_app/operations/NAME.py` is its class.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast

from deployments.models.contract.engine import ModelDirectory
from deployments.operations import ENGINE_OPERATIONS, MODEL_OPERATIONS, Operation
from deployments.patience import USUAL, Patience
from deployments.state.identity.principal import Principal
from serve_app.operations.chat import ChatOperation
from serve_app.operations.moderations import ModerationOperation
from serve_app.operations.outcome import Cost, Outcome
from serve_app.operations.responses.operation import ResponseOperation
from serve_app.operations.responses.prompt.preparation import Preparation
from serve_app.operations.responses.storage.stores import Storage
from serve_app.operations.responses.tools.contract import BuiltIns
from serve_app.operations.routing import CacheSalt
from serve_app.operations.safety.moderation import ModerationConfig, Moderator
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


class DescribedOperation(Protocol):
    """What the route of an operation is made from; the first line of its docstring is the route's summary.

    `answer` is the type of its answer, and `events` that of each server-sent event of a streamed one, None where
    nothing is streamed; as `routes.contract.Contract` has them.
    """

    __doc__: str | None
    name: Operation
    schema: type[OperationRequest]
    answer: Any
    events: Any


class EngineOperation(DescribedOperation, Protocol):
    """The class of an operation that engines run."""

    def __call__(
        self, directory: ModelDirectory, salt: CacheSalt, policies: Mapping[str, SafetyPolicy] | None = None
    ) -> RunnableOperation[Any]:
        """Return the operation over a model directory; `policies` are by model id."""
        ...


def find_engine_operation(name: Operation) -> EngineOperation:
    """Return the class of an operation that engines run.

    Raises:
        ImportError: it has no module.
    """
    return cast(EngineOperation, import_module(f"serve_app.operations.{name}").OPERATION)


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of this service."""

    by_name: Mapping[Operation, RunnableOperation[Any]]

    @property
    def responses(self) -> ResponseOperation:
        """The operation behind /v1/responses."""
        return cast(ResponseOperation, self.by_name[Operation.RESPONSES])

    def by_path(self) -> Mapping[str, RunnableOperation[Any]]:
        """Return the operations by the URL path, version included, under which clients know them."""
        return {about.path: self.by_name[name] for name, about in MODEL_OPERATIONS.items() if name in self.by_name}


def create_operations(
    directory: ModelDirectory,
    salt: CacheSalt,
    policies: Mapping[str, SafetyPolicy] | None = None,
    storage: Storage | None = None,
    built_ins: BuiltIns | None = None,
    moderation: ModerationConfig | None = None,
    patience: Patience = USUAL,
) -> Operations:
    """Return the operations over a model directory; `policies` are by model id.

    Without a `storage` there are no responses. `built_ins` are the tools that the service runs in a response. Without
    `moderation` every moderation is refused.
    """
    by_name = {name: find_engine_operation(name)(directory, salt, policies) for name in ENGINE_OPERATIONS}
    moderator = None if moderation is None else Moderator(moderation, directory)
    by_name[Operation.MODERATIONS] = ModerationOperation(moderator, salt)
    if storage is not None:
        chat = cast(ChatOperation, by_name[Operation.CHAT])
        preparation = Preparation(directory, storage, built_ins)
        by_name[Operation.RESPONSES] = ResponseOperation(chat, preparation, storage, patience.response_begins_s)
    return Operations(by_name)
