"""The models that the key may use, and the playground: a chat or a response from any of them, streamed."""

from starlette.responses import Response
from starlette.types import ASGIApp

from deployments.models.contract.engine import ModelCard
from deployments.operations import Operation
from serve_app.console.visit import Visit
from serve_app.operations.registry import find_engine_operation
from serve_app.operations.scopes import may_see
from serve_app.routes import responses
from serve_app.routes.generation import create_endpoint

create_chat = create_endpoint(find_engine_operation(Operation.CHAT))
"""A second endpoint of the operation, so that the middleware can tell its requests from those of clients."""

_WRITES = (Operation.CHAT, Operation.RESPONSES)


async def show_models(visit: Visit) -> Response:
    """Show the models."""
    cards = visible_cards(visit)
    prices = {card.id: price for card in cards if (price := visit.services.prices.of(card.id)) is not None}
    return visit.page("models.html", models=[(card, _abilities(card)) for card in cards], prices=prices)


def visible_cards(visit: Visit) -> list[ModelCard]:
    """Return the models that the key may see."""
    return [card for card in visit.services.directory.cards() if may_see(visit.principal, card)]


def _abilities(card: ModelCard) -> list[str]:
    named = (("tools", card.has_tools), ("reasoning", card.has_reasoning), ("images", card.has_images))
    return [name for name, has in named if has]


async def show_playground(visit: Visit) -> Response:
    """Show the form; the two endpoints below answer it."""
    models = [card for card in visible_cards(visit) if Operation.CHAT in card.operations]
    allowed = [operation for operation in _WRITES if visit.may(operation)]
    base = str(visit.request.base_url).rstrip("/") + "/v1"
    return visit.page("playground.html", models=models, allowed=allowed, base_url=base)


async def answer_chat(visit: Visit) -> ASGIApp:
    """Answer a chat as POST /v1/chat/completions does; it counts as one."""
    return await visit.call_counted(create_chat)


async def answer_response(visit: Visit) -> ASGIApp:
    """Answer as POST /v1/responses does; it counts as one."""
    return await visit.call_counted(responses.create_response)
