"""The operation behind /v1/tokenize. It counts as a request but takes no tokens, as no model reads the text."""

from typing import Final

from deployments.models.contract.engine import ModelCard
from deployments.operations import Operation
from serve_app.errors.api import BadRequest
from serve_app.operations.routing import check_images, unsupported_parameter
from serve_app.operations.whole import WholeOperation
from serve_app.schemas.tokenization import TokenizeRequest, TokenList

MAX_CONTEXTS = 16
MAX_TOKENS = 262_144
"""The longest text has MAX_CONTEXTS times the model's context, and MAX_TOKENS tokens at most: a replica tokenizes long
texts one by one, so others would wait for longer ones."""


class TokenizeOperation(WholeOperation[TokenizeRequest]):
    """Tokenize a text or a chat.

    Returns the tokens that the model would read.
    """

    name: Final = Operation.TOKENIZE
    schema = TokenizeRequest
    answer = TokenList

    def _check(self, body: TokenizeRequest, card: ModelCard) -> None:
        if body.tools and not card.has_tools:
            raise unsupported_parameter("tools")
        check_images(body.has_images, card, "messages")
        check_length(body.estimate_tokens(), card, "prompt" if body.messages is None else "messages")


OPERATION = TokenizeOperation


def check_length(num_tokens: int, card: ModelCard, param: str) -> None:
    """Raise BadRequest, which names `param`, if a request has too many tokens."""
    most = max(card.max_model_len, min(MAX_CONTEXTS * card.max_model_len, MAX_TOKENS))
    if num_tokens > most:
        raise BadRequest(
            f"Invalid '{param}': too long. Expected at most {most} tokens with this model, but got about {num_tokens}. "
            "Send it in parts.",
            param=param,
            code="context_length_exceeded",
        )
