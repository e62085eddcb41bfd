"""The operation behind /v1/keywords."""

from typing import Final

from deployments.models.contract.engine import ModelCard
from deployments.operations import Operation
from serve_app.operations.whole import WholeOperation
from serve_app.schemas.base import estimate_tokens
from serve_app.schemas.keywords import KeywordRequest, Keywords


class KeywordOperation(WholeOperation[KeywordRequest]):
    """Return the words of a text that say most."""

    name: Final = Operation.KEYWORDS
    schema = KeywordRequest
    answer = Keywords

    def _prompt_tokens(self, body: KeywordRequest, card: ModelCard) -> int:
        return estimate_tokens([body.input])


OPERATION = KeywordOperation
