"""The models that the key may use: context, operations, capabilities."""

from starlette.responses import Response

from deployments.models.contract.engine import ModelCard
from serve_app.console.visit import Visit
from serve_app.operations.scopes import may_see


async def show_models(visit: Visit) -> Response:
    """Show the models."""
    cards = visible_cards(visit)
    prices = {card.id: price for card in cards if (price := visit.services.prices.of(card.id)) is not None}
    return visit.page("models.html", models=[(card, _abilities(card)) for card in cards], prices=prices)


def visible_cards(visit: Visit) -> list[ModelCard]:
    """Return the models that exist for the key."""
    return [card for card in visit.services.directory.cards() if may_see(visit.principal, card)]


def _abilities(card: ModelCard) -> list[str]:
    named = (("tools", card.has_tools), ("reasoning", card.has_reasoning), ("images", card.has_images))
    return [name for name, has in named if has]
