"""The steps of the request that a task works on: what was done, from when to when. Noted only where traces are on.

A door opens the list of a request; whatever works on it adds its steps, in this task or in those that it starts. Where
no list is open, nothing is noted: that costs one look at a context variable.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

Attributes = Mapping[str, str | int | float]


@dataclass(slots=True)
class Step:
    """One step. Times are on the monotonic clock of `time.perf_counter`;"""

    name: str
    began: float
    ended: float = 0.0
    attributes: dict[str, str | int | float] = field(default_factory=dict)
    error: str | None = None


_trace_parent: ContextVar[str] = ContextVar("trace_parent", default="")
_steps: ContextVar[list[Step] | None] = ContextVar("steps", default=None)


def open_steps() -> list[Step]:
    """Return a new list that takes the steps of this task, and of those that it starts from now on."""
    steps: list[Step] = []
    _steps.set(steps)
    return steps


def set_trace_parent(trace_parent: str) -> None:
    """Note the W3C `traceparent` that requests of this task to the outside may carry."""
    _trace_parent.set(trace_parent)


def trace_parent() -> str:
    """Return the W3C `traceparent` of this task's request, "" where it is not traced."""
    return _trace_parent.get()


def are_noted() -> bool:
    """Return whether this task works on a request whose steps are noted."""
    return _steps.get() is not None


@contextmanager
def step(name: str, attributes: Attributes | None = None) -> Iterator[Step | None]:
    """Context manager that notes a step, and by its class the error that ends it; yields None where none is noted."""
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
    """Note a step that is over."""
    steps = _steps.get()
    if steps is not None:
        steps.append(Step(name, began, ended, dict(attributes or {})))
