"""What runs each operation on an engine: one module of this package for each, named after the operation."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from deployments.channel.server import Reply, Runner
from deployments.operations import Operation
from deployments.replica.scheduling.preparing import Preparing
from deployments.replica.schemas.budget import SchemaCompiler

NO_USAGE = {"usage": [0, 0, 0, 0], "finish_reasons": []}
"""The summary of an answer that no model worked for."""


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """What a runner can stand on.

    `find_serving` returns vLLM's own serving class by its short name, such as "chat", None where the model has none.
    `client` is vLLM's engine. `start_compiler` starts what tries JSON schemas out.
    """

    model_id: str
    client: Any
    find_serving: Callable[[str], Any]
    start_compiler: Callable[[], SchemaCompiler]
    preparing: Preparing


def end_with(reply: Reply, header: dict[str, Any], summary: dict[str, Any], last: bytes) -> None:
    """End an answer with its last piece, in one frame where the reader can take that."""
    if header.get("takes_notes", False):
        reply.end(summary, last)
        return
    if last:
        reply.write(last)
    reply.end(summary)


def create_runner(operation: Operation, context: RunnerContext) -> Runner | None:
    """Return what runs an operation: what `create_runner` in its module returns, None where the model cannot.

    Raises:
        ImportError: it has no module.
    """
    return cast(Runner | None, import_module(f"deployments.replica.{operation}").create_runner(context))
