"""GET /v1/models and /v1/models/{id}: the models that the key may use."""

from starlette.requests import Request
from starlette.responses import Response

from serve_app.errors.api import ModelNotFound
from serve_app.operations.scopes import may_see
from serve_app.routes.access import caller, json_response, services_of
from serve_app.routes.contract import answers
from serve_app.schemas.models import Model, ModelList, model_to_wire, models_to_wire


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
