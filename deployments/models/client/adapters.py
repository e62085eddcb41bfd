"""A LoRA adapter as a model of its own: the engine of its base model, asked for the adapter."""

from dataclasses import replace

from deployments.models.contract.engine import Adapter, Engine, EngineRequest, EngineStream


class AdapterEngine:
    """One adapter of a model. Keeps the contract of Engine."""

    def __init__(self, base: Engine, adapter: Adapter) -> None:
        card = base.card
        self.card = replace(
            card, id=adapter_id(card.id, adapter.name), base=card.id, accounts=adapter.accounts, adapters=()
        )
        self._base = base
        self._name = adapter.name

    def run(self, request: EngineRequest) -> EngineStream:
        """Return the answer's stream; nothing happens until it is iterated.

        Requests for an adapter are placed together: its replica has it loaded, and its prefixes are no other's.
        """
        affinity = f"{request.affinity or ''}:{self._name}"
        return self._base.run(replace(request, adapter=self._name, affinity=affinity))


def adapter_id(model: str, adapter: str) -> str:
    """Return the id under which clients know an adapter of a model, or of an alias."""
    return f"{model}:{adapter}"
