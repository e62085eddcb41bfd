"""The operation behind /v1/score, and what reranking has in common with it."""

from typing import Final, TypeVar

from deployments.models.contract.engine import ModelCard
from deployments.operations import Operation
from serve_app.operations.whole import WholeOperation
from serve_app.schemas.base import estimate_tokens
from serve_app.schemas.scoring import ScoreList, ScoreRequest, ScoringRequest

Body = TypeVar("Body", bound=ScoringRequest)


class ScoringOperation(WholeOperation[Body]):
    """An operation whose engine scores how well texts match."""

    def _prompt_tokens(self, body: Body, card: ModelCard) -> int:
        limit = card.max_model_len  # Longer texts are cut.
        left, right = ([estimate_tokens([text]) for text in texts] for texts in (body.left_texts(), body.right_texts()))
        if card.reads_pairs:
            queries = left if len(left) == len(right) else left * len(right)
            return sum(min(query + document, limit) for query, document in zip(queries, right, strict=True))
        return sum(min(num_tokens, limit) for num_tokens in (*left, *right))


class ScoreOperation(ScoringOperation[ScoreRequest]):
    """Score pairs of texts.

    Returns how well each pair matches.
    """

    name: Final = Operation.SCORE
    schema = ScoreRequest
    answer = ScoreList


OPERATION = ScoreOperation
