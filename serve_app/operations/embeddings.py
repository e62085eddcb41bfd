"""The operation behind /v1/embeddings; vector stores use it too, in `vector_stores.embedder`."""

from typing import Final

from deployments.models.contract.engine import ModelCard
from deployments.operations import Operation
from serve_app.errors.api import BadRequest
from serve_app.operations.routing import unsupported_parameter
from serve_app.operations.whole import WholeOperation
from serve_app.schemas.embeddings import EmbeddingList, EmbeddingRequest
from serve_app.schemas.inputs import count_inputs


class EmbeddingOperation(WholeOperation[EmbeddingRequest]):
    """Create embeddings."""

    name: Final = Operation.EMBEDDINGS
    schema = EmbeddingRequest
    answer = EmbeddingList

    def _check(self, body: EmbeddingRequest, card: ModelCard) -> None:
        _check_dimensions(body.dimensions, card)

    def _prompt_tokens(self, body: EmbeddingRequest, card: ModelCard) -> int:
        # Inputs are cut at the model's context, so they cost no more than that.
        return min(body.prompt_estimate_tokens(), count_inputs(body.input) * card.max_model_len)

    def _cut_tokens(self, body: EmbeddingRequest, card: ModelCard, prompt_tokens: int) -> int:
        return body.count_cut(prompt_tokens, count_inputs(body.input), card.max_model_len)


OPERATION = EmbeddingOperation


def _check_dimensions(dimensions: int | None, card: ModelCard) -> None:
    if dimensions is None:
        return
    if card.dimensions is None:
        raise unsupported_parameter("dimensions")
    if dimensions not in card.dimensions:
        offered = ", ".join(str(size) for size in card.dimensions)
        raise BadRequest(
            f"Invalid value for 'dimensions': this model does not offer {dimensions}. Supported values are: {offered}.",
            param="dimensions",
            code="unsupported_value",
        )
