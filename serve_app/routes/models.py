"""GET /v1/models and /v1/models/{id}: the models that the key may use."""

from collections.abc import Iterable
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from deployments.models.contract.engine import ModelCard
from serve_app.errors.api import ModelNotFound
from serve_app.operations.scopes import may_see
from serve_app.routes.endpoint import answers, caller, json_response, services_of


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
    """Return a model for a client."""
    return {"id": card.id, "object": "model", "created": card.created, "owned_by": card.owned_by}


def models_to_wire(cards: Iterable[ModelCard]) -> ModelList:
    """Return a list of models for a client."""
    return {"object": "list", "data": [model_to_wire(card) for card in cards]}


@answers(ModelList)
async def list_models(request: Request) -> Response:
    """Return every model that the key may use."""
    principal = await caller(request)
    cards = services_of(request).directory.cards()
    return json_response(models_to_wire(card for card in cards if may_see(principal, card)))


@answers(Model)
async def retrieve_model(request: Request) -> Response:
    """Return one model; its id may hold slashes, raw or encoded."""
    principal = await caller(request)
    model_id: str = request.path_params["model"]
    engine = services_of(request).directory.find(model_id)
    if engine is None or not may_see(principal, engine.card):
        raise ModelNotFound(model_id)
    return json_response(model_to_wire(engine.card))
