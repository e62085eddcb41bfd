"""What the runners of all operations share; each operation has a module of its name in this package.

vLLM keeps `max_loras` adapters ready to run and `max_cpu_loras` in memory. Each request loads its adapter first: vLLM
would otherwise load an evicted adapter in the middle of a step, where a failure ends the engine.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from vllm.lora.request import LoRARequest

from deployments.channel.server import Reply, Runner
from deployments.models.adapters import fetch_adapter
from deployments.models.contract.engine import Usage
from deployments.models.contract.errors import EngineError, RequestRejected
from deployments.models.fill_in_middle import FillInMiddle
from deployments.operations import Operation
from deployments.replica.scheduling.preparing import Preparing
from deployments.replica.schemas.budget import SchemaCompiler

logger = logging.getLogger(__name__)


class Adapters:
    """The LoRA adapters of one engine, fetched once. `client` is vLLM's engine; `sources` are by name."""

    def __init__(self, client: Any, model_id: str, sources: Mapping[str, str]) -> None:
        self._client = client
        self._model_id = model_id
        self._sources = sources
        self._numbers = {name: number for number, name in enumerate(sorted(sources), start=1)}
        self._fetching: dict[str, asyncio.Task[Path]] = {}

    async def use(self, name: str) -> LoRARequest:
        """Load an adapter into the engine, and return what a request passes to the engine.

        Raises:
            RequestRejected: the model has no such adapter.
            EngineError: its files are missing, or do not fit the model.
        """
        if name not in self._sources:
            raise RequestRejected(f"The model `{self._model_id}` has no such adapter.", "model", "model_not_found")
        try:
            path = await asyncio.shield(self._fetched(name))
            request = LoRARequest(name, self._numbers[name], str(path), base_model_name=self._model_id)
            await self._client.add_lora(request)
        except Exception as error:
            # The operator's log may name the source; the client's error does not.
            logger.error("The adapter %s of %s cannot be loaded: %s", name, self._model_id, error)
            self._fetching.pop(name, None)
            raise EngineError("The adapter cannot be loaded.") from None
        return request

    def _fetched(self, name: str) -> "asyncio.Task[Path]":
        task = self._fetching.get(name)
        if task is None:  # The first of many requests fetches, the others wait for it.
            work = asyncio.to_thread(fetch_adapter, self._sources[name])
            task = self._fetching[name] = asyncio.create_task(work)
        return task


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """What a runner is created with.

    `find_serving` returns vLLM's own serving class by its short name, such as "chat"; None if the model has none.
    `client` is vLLM's engine. `start_compiler` starts the compiler that tries JSON schemas. `fill_in_middle` is the
    model's setting of that name, `budgets` has the tokens of reasoning by effort.
    """

    model_id: str
    client: Any
    find_serving: Callable[[str], Any]
    start_compiler: Callable[[], SchemaCompiler]
    preparing: Preparing
    adapters: Adapters | None = None
    fill_in_middle: FillInMiddle | None = None
    budgets: Mapping[str, int] = field(default_factory=dict)


def summary_of(usage: Usage, finish_reasons: list[str] | None = None, queued_s: float | None = None) -> dict[str, Any]:
    """Return the summary that ends an answer."""
    return {
        "usage": [usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens],
        "finish_reasons": finish_reasons or [],
        **({} if queued_s is None else {"queued_s": queued_s}),
    }


def end_with(reply: Reply, header: dict[str, Any], summary: dict[str, Any], last: bytes) -> None:
    """End an answer with its last piece; in one frame, if the reader supports that."""
    if header.get("takes_notes", False):
        reply.end(summary, last)
        return
    if last:
        reply.write(last)
    reply.end(summary)


async def find_lora(adapters: Adapters | None, header: dict[str, Any]) -> LoRARequest | None:
    """Return the loaded adapter of a request, or raise EngineError; None for a request to the model itself."""
    name: str | None = header.get("adapter")
    if name is None:
        return None
    if adapters is None:
        raise RequestRejected("The model has no adapters.", "model", "model_not_found")
    return await adapters.use(name)


def model_named(model_id: str, header: dict[str, Any]) -> str:
    """Return the model's name in an answer: it includes the adapter."""
    name: str | None = header.get("adapter")
    return model_id if name is None else f"{model_id}:{name}"


def create_runner(operation: Operation, context: RunnerContext) -> Runner | None:
    """Return the runner of an operation, from its module; None if the model does not support the operation."""
    return cast(Runner | None, import_module(f"deployments.replica.{operation}").create_runner(context))
