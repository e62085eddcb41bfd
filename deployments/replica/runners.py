"""What runs each operation on an engine: one module of this package for each, named after the operation."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from deployments.channel.server import Runner
from deployments.operations import Operation
from deployments.replica.scheduling.preparing import Preparing
from deployments.replica.schemas.budget import SchemaCompiler


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


def create_runner(operation: Operation, context: RunnerContext) -> Runner | None:
    """Return what runs an operation: what `create_runner` in its module returns, None where the model cannot.

    Raises:
        ImportError: it has no module.
    """
    return cast(Runner | None, import_module(f"deployments.replica.{operation}").create_runner(context))
