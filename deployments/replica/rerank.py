"""Reranking inside the replica: the documents of a request, sorted by their scores."""

from typing import Any

import orjson

from deployments.channel.server import Reply
from deployments.replica.runners import RunnerContext, end_with
from deployments.replica.score import PairScorer


class RerankRunner:
    """Runs reranking on one engine."""

    def __init__(self, scorer: PairScorer) -> None:
        self._scorer = scorer

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request, or raise an `EngineError`."""
        fields = orjson.loads(body)
        scored = await self._scorer.score(header, fields, reply)
        best = sorted(range(len(scored.scores)), key=lambda index: (-scored.scores[index], index))
        results = []
        for index in best[: fields["top_n"]]:
            result: dict[str, Any] = {"index": index, "relevance_score": scored.scores[index]}
            if fields["return_documents"]:
                result["document"] = {"text": fields["documents"][index]}
            results.append(result)
        answer = {
            "id": "rerank-" + header["request_id"].removeprefix("req_"),
            "model": self._scorer.model_id,
            "results": results,
            "usage": scored.usage(),
        }
        end_with(reply, header, scored.summary(), orjson.dumps(answer))


def create_runner(context: RunnerContext) -> RerankRunner | None:
    """Return the runner of reranking; None if the model does not support it."""
    serving = context.find_serving("scores")
    return None if serving is None else RerankRunner(PairScorer(serving, context.model_id))
