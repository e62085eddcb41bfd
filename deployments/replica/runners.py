"""What runs each operation on an engine: one module of this package for each, named after the operation."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from vllm.lora.request import LoRARequest

from deployments.channel.server import Reply, Runner
from deployments.models.contract.errors import RequestRejected
from deployments.operations import Operation
from deployments.replica.adapters import Adapters
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
    adapters: Adapters | None = None


def end_with(reply: Reply, header: dict[str, Any], summary: dict[str, Any], last: bytes) -> None:
    """End an answer with its last piece, in one frame where the reader can take that."""
    if header.get("takes_notes", False):
        reply.end(summary, last)
        return
    if last:
        reply.write(last)
    reply.end(summary)


async def find_lora(adapters: Adapters | None, header: dict[str, Any]) -> LoRARequest | None:
    """Return the adapter that a request is for, loaded; None where it is for the model itself.

    Raises:
        EngineError: there is no such adapter, or it cannot be loaded.
    """
    name: str | None = header.get("adapter")
    if name is None:
        return None
    if adapters is None:
        raise RequestRejected("The model has no adapters.", "model", "model_not_found")
    return await adapters.use(name)


def model_named(model_id: str, header: dict[str, Any]) -> str:
    """Return the name of the model in the answer to a request, which names its adapter."""
    name: str | None = header.get("adapter")
    return model_id if name is None else f"{model_id}:{name}"


def create_runner(operation: Operation, context: RunnerContext) -> Runner | None:
    """Return what runs an operation: what `create_runner` in its module returns, None where the model cannot.

    Raises:
        ImportError: it has no module.
    """
    return cast(Runner | None, import_module(f"deployments.replica.{operation}").create_runner(context))
