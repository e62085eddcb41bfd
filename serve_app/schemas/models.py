"""The wire form of models: GET /v1/models and /v1/models/{id}."""

from collections.abc import Iterable
from typing import Literal

from typing_extensions import TypedDict

from deployments.models.contract.engine import ModelCard


class Model(TypedDict):
    """One model, as OpenAI's clients read it; `created` is in Unix seconds."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(TypedDict):
    """Every model that a key may use."""

    object: Literal["list"]
    data: list[Model]


def model_to_wire(card: ModelCard) -> Model:
    """Return one model as clients know it."""
    return {"id": card.id, "object": "model", "created": card.created, "owned_by": card.owned_by}


def models_to_wire(cards: Iterable[ModelCard]) -> ModelList:
    """Return a list of models as clients know it, in their order."""
    return {"object": "list", "data": [model_to_wire(card) for card in cards]}
