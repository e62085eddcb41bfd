"""The models that the key may use, and the playground: a chat or a response from any of them, streamed."""

import asyncio
from typing import get_args

from starlette.responses import Response
from starlette.types import ASGIApp

from deployments.models.config import deployment_name
from deployments.models.contract.engine import ModelCard
from deployments.models.reasoning import Effort
from deployments.operations import Operation
from serve_app.console.snippets import environment, programs
from serve_app.console.visit import Visit
from serve_app.operations.registry import find_engine_operation
from serve_app.operations.scopes import may_see
from serve_app.routes import responses
from serve_app.routes.generation import create_endpoint
from serve_app.telemetry.health import State, state_of

create_chat = create_endpoint(find_engine_operation(Operation.CHAT))
"""A second endpoint of the operation, so that the middleware can tell its requests from those of clients."""

_STATES_S = 2
_WRITES = (Operation.CHAT, Operation.RESPONSES)


async def show_models(visit: Visit) -> Response:
    """Show the models: what each can do, whether it can answer now, its price, and programs that call it."""
    states = await _states(visit)
    models = [
        {
            "card": card,
            "state": states.get(deployment_name(card.base or card.id)),
            "abilities": _abilities(card),
            "price": visit.services.prices.of(card.id),
            "programs": programs(card.id, card.operations),
            "can_chat": Operation.CHAT in card.operations and visit.may(Operation.CHAT),
        }
        for card in visible_cards(visit)
    ]
    return visit.page("models.html", models=models)


async def _states(visit: Visit) -> dict[str, State]:
    """Return the states of the deployments by their names; empty if they are not known soon."""
    if visit.services.cluster is None:
        return {}
    try:
        async with asyncio.timeout(_STATES_S):
            return {one["name"]: state_of(one) for one in await visit.services.cluster.deployments()}
    except TimeoutError:
        return {}


def visible_cards(visit: Visit) -> list[ModelCard]:
    """Return the models that the key may see."""
    return [card for card in visit.services.directory.cards() if may_see(visit.principal, card)]


def _abilities(card: ModelCard) -> list[str]:
    named = (
        ("tools", card.has_tools),
        ("images", card.has_images),
        ("reasoning", card.has_reasoning),
        ("structured output", bool(card.operations & {Operation.CHAT, Operation.COMPLETIONS})),
    )
    return [name for name, has in named if has]


async def show_playground(visit: Visit) -> Response:
    """Show the form; the two endpoints below answer it."""
    cards = [card for card in visible_cards(visit) if Operation.CHAT in card.operations]
    return visit.page(
        "playground.html",
        models=[(card, _abilities(card), _price(visit, card)) for card in cards],
        allowed=[operation for operation in _WRITES if visit.may(operation)],
        efforts=get_args(Effort),
        environment=environment(visit.api_url),
    )


def _price(visit: Visit, card: ModelCard) -> tuple[float, float, float] | None:
    """Return the prices of a million prompt, cached and completion tokens, None where none are set."""
    price = visit.services.prices.of(card.id)
    if price is None:
        return None
    return price.input, price.input if price.cached_input is None else price.cached_input, price.output


async def answer_chat(visit: Visit) -> ASGIApp:
    """Answer a chat as POST /v1/chat/completions does; it counts as one."""
    return await visit.call_counted(create_chat)


async def answer_response(visit: Visit) -> ASGIApp:
    """Answer as POST /v1/responses does; it counts as one."""
    return await visit.call_counted(responses.create_response)
