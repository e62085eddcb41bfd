"""The LoRA adapters of one engine: fetched once, loaded when they are asked for, the least recently used ones evicted.

vLLM keeps `max_loras` of them ready to run and `max_cpu_loras` in memory. A request asks for its adapter each time:
vLLM would otherwise load an evicted one in the middle of a step, where a failure ends the engine.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm.lora.request import LoRARequest

from deployments.models.adapters import fetch_adapter
from deployments.models.config import ModelConfig
from deployments.models.contract.errors import EngineError, RequestRejected

logger = logging.getLogger(__name__)


class Adapters:
    """What one engine has of its adapters. `client` is vLLM's engine; `sources` are by name."""

    def __init__(self, client: Any, model_id: str, sources: Mapping[str, str]) -> None:
        self._client = client
        self._model_id = model_id
        self._sources = sources
        self._numbers = {name: number for number, name in enumerate(sorted(sources), start=1)}
        self._fetching: dict[str, asyncio.Task[Path]] = {}

    async def use(self, name: str) -> LoRARequest:
        """Return what a request with this adapter must name to the engine, which has it loaded now.

        Raises:
            RequestRejected: the model has no such adapter.
            EngineError: its files are not there, or are not such an adapter's.
        """
        if name not in self._sources:
            raise RequestRejected(f"The model `{self._model_id}` has no such adapter.", "model", "model_not_found")
        try:
            path = await asyncio.shield(self._fetched(name))
            request = LoRARequest(name, self._numbers[name], str(path), base_model_name=self._model_id)
            await self._client.add_lora(request)
        except Exception as error:
            # The operator's log may name the place; the client's answer does not.
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


def adapters_of(client: Any, model: ModelConfig) -> Adapters:
    """Return the adapters that a configuration gives to a model's engine."""
    return Adapters(client, model.id, {name: model.adapter_source(name) for name in model.adapters})
