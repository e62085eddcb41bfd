"""The models of this service and their adapters by the ids and aliases that clients use; whether they have started."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from deployments.models.contract.engine import Adapter, Engine, EngineRequest, EngineStream, ModelCard


class AdapterEngine:
    """A LoRA adapter as a model of its own: the `Engine` of its base model, with the adapter."""

    def __init__(self, base: Engine, adapter: Adapter) -> None:
        card = base.card
        self.card = replace(
            card,
            id=adapter_id(card.id, adapter.name),
            base=card.id,
            accounts=adapter.accounts,
            adapters=(),
            aliases=tuple(adapter_id(alias, adapter.name) for alias in card.aliases),
        )
        self._base = base
        self._name = adapter.name

    def run(self, request: EngineRequest) -> EngineStream:
        """Return the answer's stream; nothing happens until it is iterated.

        Requests for an adapter go to the same replica, which has it loaded; its prefixes are cached apart.
        """
        affinity = f"{request.affinity or ''}:{self._name}"
        return self._base.run(replace(request, adapter=self._name, affinity=affinity))


def adapter_id(model: str, adapter: str) -> str:
    """Return the id that clients use for an adapter of a model or an alias."""
    return f"{model}:{adapter}"


class ConfiguredDirectory:
    """The models of the configuration; a `ModelDirectory`."""

    def __init__(self, engines: Iterable[tuple[Engine, Iterable[str]]]) -> None:
        """Take each model's engine with the model's aliases."""
        self._engines: dict[str, Engine] = {}
        self._cards: list[ModelCard] = []
        for engine, given in engines:
            aliases = tuple(given)
            self._cards.append(engine.card)
            for name in (engine.card.id, *aliases):
                self._engines[name] = engine
            for adapter in engine.card.adapters:
                adapted = AdapterEngine(engine, adapter)
                self._cards.append(adapted.card)
                for name in (engine.card.id, *aliases):
                    self._engines[adapter_id(name, adapter.name)] = adapted

    def find(self, model_id: str) -> Engine | None:
        """Return the engine behind a model id or alias, None when there is none."""
        return self._engines.get(model_id)

    def cards(self) -> list[ModelCard]:
        """Return every model's card, followed by those of its adapters, in the order of the configuration."""
        return list(self._cards)


class Starting(Protocol):
    """A model that may be starting, such as a `RemoteEngine`."""

    async def wait_for_replica(self) -> None:
        """Return once there is a replica."""


class ModelStartup:
    """Which models have had a replica since this process began; it does not check whether they still do.

    A process is ready when the first model is. Requests for other models wait, or get a 503. If all had to be ready, a
    new model in a running service, or a broken one, would take the others out of service.
    """

    def __init__(self, engines: Iterable[Starting] = ()) -> None:
        """Take the models that are kept running; those that are scaled to zero wake up for a request."""
        self._engines = tuple(engines)
        self._num_started = 0
        self._waiting: list[asyncio.Task[None]] = []

    @property
    def is_ready(self) -> bool:
        """Whether there is a model that can answer, or none that is kept running."""
        return self._num_started > 0 or not self._engines

    @property
    def num_starting(self) -> int:
        """How many models have not had a replica yet."""
        return len(self._engines) - self._num_started

    def watch(self) -> None:
        """Start watching, on the running loop."""
        self._waiting = [asyncio.create_task(self._wait(engine)) for engine in self._engines]

    async def _wait(self, engine: Starting) -> None:
        await engine.wait_for_replica()
        self._num_started += 1

    async def close(self) -> None:
        """Stop watching."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)
