"""The playground: chat and responses with any model of the key, streamed, beside the code that asks the same."""

from starlette.responses import Response
from starlette.types import ASGIApp

from deployments.operations import Operation
from serve_app.console.pages.models import visible_cards
from serve_app.console.visit import Visit
from serve_app.operations.registry import find_engine_operation
from serve_app.routes import responses
from serve_app.routes.generation import create_endpoint

create_chat = create_endpoint(find_engine_operation(Operation.CHAT))
"""A second endpoint of the operation, so that the frame of HTTP tells its requests from those of clients."""

_WRITES = (Operation.CHAT, Operation.RESPONSES)


async def show_playground(visit: Visit) -> Response:
    """Show the form; the answers come from the two pages below."""
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
