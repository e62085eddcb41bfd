"""The steps of a request in its trace, and the names in traces.

The code that receives a request opens its list of steps. The code that works on it adds to the list, in this task or in
tasks that it starts. Where traces are off no list is open, and nothing is noted: that costs one look at a context
variable.

The names are OpenTelemetry's for HTTP and, still in development there, for generative AI; then our own. Source:
opentelemetry.io/docs/specs/semconv, "HTTP spans" and "Generative AI client spans", version 1.37.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from deployments.operations import Operation

METHOD: Final = "http.request.method"
ROUTE: Final = "http.route"
STATUS: Final = "http.response.status_code"
ERROR_TYPE: Final = "error.type"
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"

CACHED_TOKENS: Final = "manta.usage.cached_tokens"
REQUEST_ID: Final = "manta.request_id"
BATCH_ID: Final = "manta.batch_id"
SERVICE_TIER: Final = "manta.service_tier"
NUM_LOSSES: Final = "manta.replica_losses"
NUM_COMPLETED: Final = "manta.batch.completed"
NUM_FAILED: Final = "manta.batch.failed"

OPERATION_NAMES: Final = {
    Operation.CHAT: "chat",
    Operation.COMPLETIONS: "text_completion",
    Operation.EMBEDDINGS: "embeddings",
}
"""Operations as the conventions name them; the others have no name there."""

RECEIVE: Final = "receive"
ADMISSION: Final = "admission"
ROUTING: Final = "routing"
QUEUE: Final = "queue"
PREFILL: Final = "prefill"
DECODE: Final = "decode"
STORAGE: Final = "storage"
TOOL: Final = "execute_tool"
BATCH: Final = "batch"
LINE: Final = "batch_line"

Attributes = Mapping[str, str | int | float]


@dataclass(slots=True)
class Step:
    """One step. Times are on the monotonic clock of `time.perf_counter`."""

    name: str
    began: float
    ended: float = 0.0
    attributes: dict[str, str | int | float] = field(default_factory=dict)
    error: str | None = None


_trace_parent: ContextVar[str] = ContextVar("trace_parent", default="")
_steps: ContextVar[list[Step] | None] = ContextVar("steps", default=None)


def open_steps() -> list[Step]:
    """Return a new list for the steps of this task, and of the tasks that it starts from now on."""
    steps: list[Step] = []
    _steps.set(steps)
    return steps


def set_trace_parent(trace_parent: str) -> None:
    """Set the W3C `traceparent` that outbound requests of this task may carry."""
    _trace_parent.set(trace_parent)


def trace_parent() -> str:
    """Return the W3C `traceparent` of this task's request, "" if it is not traced."""
    return _trace_parent.get()


def are_noted() -> bool:
    """Return whether this task works on a request whose steps are noted."""
    return _steps.get() is not None


@contextmanager
def step(name: str, attributes: Attributes | None = None) -> Iterator[Step | None]:
    """Context manager that notes a step, and the class of an error that ends it. Yields None if nothing is noted."""
    steps = _steps.get()
    if steps is None:
        yield None
        return
    noted = Step(name, time.perf_counter(), attributes=dict(attributes or {}))
    steps.append(noted)
    try:
        yield noted
    except BaseException as error:
        noted.error = type(error).__name__
        raise
    finally:
        noted.ended = time.perf_counter()


def note(name: str, began: float, ended: float, attributes: Attributes | None = None) -> None:
    """Note a step that has ended."""
    steps = _steps.get()
    if steps is not None:
        steps.append(Step(name, began, ended, dict(attributes or {})))
