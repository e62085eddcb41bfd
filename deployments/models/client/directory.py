"""The models of this service and their adapters, by the ids and aliases under which clients know them."""

from collections.abc import Iterable

from deployments.models.client.adapters import AdapterEngine, adapter_id
from deployments.models.contract.engine import Engine, ModelCard


class ConfiguredDirectory:
    """The models that the configuration names; keeps `deployments.models.contract.engine.ModelDirectory`."""

    def __init__(self, engines: Iterable[tuple[Engine, Iterable[str]]]) -> None:
        """Take each model's engine with its aliases."""
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
