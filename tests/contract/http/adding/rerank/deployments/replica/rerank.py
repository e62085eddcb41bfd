"""Reranking inside the replica."""

from typing import Any

import orjson

from deployments.channel.server import Reply
from deployments.replica.runners import RunnerContext


class RerankRunner:
    """Runs reranking on one engine; a document fits the better, the more words of the query it has."""

    def __init__(self, model_id: str) -> None:
        self._model_id = model_id

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request."""
        fields = orjson.loads(body)
        words = set(fields["query"].split())
        scores = [len(words & set(document.split())) / len(words) for document in fields["documents"]]
        results = [{"index": index, "relevance_score": score} for index, score in enumerate(scores)]
        results.sort(key=lambda result: -result["relevance_score"])
        reply.write(orjson.dumps({"model": self._model_id, "results": results}))
        reply.end({"usage": [len(body) // 4, 0, 0, 0], "finish_reasons": []})


def create_runner(context: RunnerContext) -> RerankRunner | None:
    """Return what reranks on an engine, None where its model cannot."""
    return None if context.find_serving("scores") is None else RerankRunner(context.model_id)
