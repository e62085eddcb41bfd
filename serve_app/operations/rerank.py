"""The operation behind /v1/rerank."""

from typing import Final

from deployments.operations import Operation
from serve_app.operations.score import ScoringOperation
from serve_app.schemas.scoring import Ranking, RerankRequest


class RerankOperation(ScoringOperation[RerankRequest]):
    """Rank documents by a query."""

    name: Final = Operation.RERANK
    schema = RerankRequest
    answer = Ranking


OPERATION = RerankOperation
