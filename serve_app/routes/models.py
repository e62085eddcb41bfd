"""GET /v1/models and /v1/models/{id}: the models that the key may use."""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

import orjson
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from deployments.models.contract.engine import ModelCard
from serve_app.operations.routing import model_not_found
from serve_app.operations.scopes import may_see
from serve_app.routes.endpoint import answers, caller, json_response, services_of
from serve_app.schemas.codex import codex_catalogue

_FOR_ANTHROPIC = "anthropic-version"
"""The header of clients that read Anthropic's format."""
_FOR_CODEX = "client_version"
"""The parameter by which Codex asks for its catalogue."""


class Model(TypedDict):
    """One model, as OpenAI's clients read it, with what agents look for.

    `created` is in Unix seconds. `max_model_len` and `context_length` are both the size of its context in tokens, as
    vLLM and OpenRouter call it. `capabilities` are tools, reasoning and images.
    """

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    context_length: int
    capabilities: list[str]


class AnthropicModel(TypedDict):
    """One model, as Anthropic's clients read it. `created_at` is a time by RFC 3339."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str
    max_input_tokens: int
    max_tokens: int


class ModelList(TypedDict):
    """Every model that a key may use."""

    object: Literal["list"]
    data: list[Model]


def model_to_wire(card: ModelCard) -> Model:
    """Return a model for a client."""
    return {
        "id": card.id,
        "object": "model",
        "created": card.created,
        "owned_by": card.owned_by,
        "max_model_len": card.max_model_len,
        "context_length": card.max_model_len,
        "capabilities": [name for name, has in card.abilities.items() if has],
    }


def model_to_anthropic(card: ModelCard) -> AnthropicModel:
    """Return a model for a client of Anthropic's interface."""
    return {
        "type": "model",
        "id": card.id,
        "display_name": card.id,
        "created_at": datetime.fromtimestamp(card.created, UTC).isoformat().replace("+00:00", "Z"),
        "max_input_tokens": card.max_model_len,
        "max_tokens": card.max_model_len,
    }


def models_to_wire(cards: Iterable[ModelCard]) -> ModelList:
    """Return a list of models for a client."""
    return {"object": "list", "data": [model_to_wire(card) for card in cards]}


@answers(ModelList)
async def list_models(request: Request) -> Response:
    """List models.

    Returns every model that the key may use. With `client_version`, which Codex sends, it is Codex's catalogue of them.
    """
    principal = await caller(request)
    cards = [card for card in services_of(request).directory.cards() if may_see(principal, card)]
    if _FOR_CODEX in request.query_params:
        return _unless_known(request, orjson.dumps(codex_catalogue(cards)))
    if _FOR_ANTHROPIC in request.headers:
        models = [model_to_anthropic(card) for card in cards]
        ends = {"first_id": models[0]["id"], "last_id": models[-1]["id"]} if models else {}
        return json_response({"data": models, "has_more": False, "first_id": None, "last_id": None, **ends})
    return json_response(models_to_wire(cards))


def _unless_known(request: Request, body: bytes) -> Response:
    """Return a JSON body with its ETag, or only that it has not changed since the client read it."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


@answers(Model)
async def retrieve_model(request: Request) -> Response:
    """Retrieve a model.

    Slashes in the id may be encoded or not.
    """
    principal = await caller(request)
    model_id: str = request.path_params["model"]
    directory = services_of(request).directory
    engine = directory.find(model_id)
    if engine is None or not may_see(principal, engine.card):
        raise model_not_found(directory, model_id, principal)
    to_wire = model_to_anthropic if _FOR_ANTHROPIC in request.headers else model_to_wire
    return json_response(to_wire(engine.card))
