"""The operation behind /v1/detokenize. It counts as a request but takes no tokens."""

from typing import Final

from deployments.models.contract.engine import ModelCard
from deployments.operations import Operation
from serve_app.operations.tokenize import check_length
from serve_app.operations.whole import WholeOperation
from serve_app.schemas.tokenization import DetokenizedText, DetokenizeRequest


class DetokenizeOperation(WholeOperation[DetokenizeRequest]):
    """Turn tokens into text."""

    name: Final = Operation.DETOKENIZE
    schema = DetokenizeRequest
    answer = DetokenizedText

    def _check(self, body: DetokenizeRequest, card: ModelCard) -> None:
        check_length(len(body.tokens), card, "tokens")


OPERATION = DetokenizeOperation
