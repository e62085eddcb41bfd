"""Asks the model of a turn for one answer."""

from deployments.models.contract.engine import EngineStream
from serve_app.operations.chat import ChatOperation
from serve_app.operations.responses.prompt.dialect import GenerationChat
from serve_app.operations.responses.prompt.turn import Turn


def ask(turn: Turn, operation: ChatOperation, chat: GenerationChat, name: str = "") -> EngineStream:
    """Return the answer to a chat, as events, not begun yet; `name` tells it from the turn's other answers."""
    return operation.run_as_events(
        turn.engine,
        chat.body,
        chat.raw,
        turn.principal,
        request_id=turn.request_id + name,
        priority=turn.priority,
        service_tier=turn.service_tier,
    )
