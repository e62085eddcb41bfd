"""The contract of an operation, and what it returns: the cost of a request, then an answer that has not begun."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from deployments.models.contract.engine import EngineStream, Summary
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from serve_app.schemas.base import OperationRequest

Body = TypeVar("Body", bound=OperationRequest)


@dataclass(frozen=True, slots=True)
class Cost:
    """The tokens that a request may take, before it has run.

    `completion_tokens` is the client's max tokens over all choices, None where it set none; `max_completion_tokens` is
    what the model could generate, 0 for a model that generates nothing. `cut_tokens` are those of the prompt that are
    cut off before the model: they count besides what it reports.
    """

    model: str
    prompt_tokens: int
    completion_tokens: int | None
    max_completion_tokens: int
    cut_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one request. Nothing has run yet: iterating `stream` starts it, closing it ends it.

    `is_stream` says whether its pieces are server-sent events or parts of one JSON body.
    """

    stream: EngineStream
    is_stream: bool


class GeneratedStream(ABC):
    """An EngineStream whose pieces come from the generator `_generate`; nothing runs before it is iterated."""

    def __init__(self) -> None:
        self.summary = Summary()
        self._pieces: AsyncGenerator[bytes] | None = None

    @abstractmethod
    def _generate(self) -> AsyncGenerator[bytes]: ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._pieces = self._generate()
        return self._pieces

    async def aclose(self) -> None:
        """Abort the answer if it still runs; `summary` then has the usage so far."""
        if self._pieces is not None:
            await self._pieces.aclose()


class RunnableOperation(Protocol[Body]):
    """An operation: from a body of type `schema` to an answer that has not begun."""

    @property
    def name(self) -> Operation:
        """Its name in configurations and scopes."""

    @property
    def schema(self) -> type[Body]:
        """The wire model of its body."""

    def cost(self, body: Body, principal: Principal) -> Cost:
        """Return what a body may take.

        Raises:
            ApiError: the key may not use the model, or the model does not support the request.
        """

    def run(self, body: Body, raw: bytes, principal: Principal, *, request_id: str, priority: int = 0) -> Outcome:
        """Return the answer to a body, not begun yet; `raw` are the bytes that the body was parsed from.

        Raises:
            ApiError: as `cost` does.
        """


class DescribedOperation(Protocol):
    """What the route of an operation needs; the first line of the docstring is the route's summary.

    `answer` is the type of its answer, `events` that of each server-sent event, None where nothing is streamed, as in
    `serve_app.routes.endpoint.Contract`.
    """

    __doc__: str | None
    name: Operation
    schema: type[OperationRequest]
    answer: Any
    events: Any
