"""Scores of pairs of texts inside the replica."""

import time
from typing import Any

import orjson

from deployments.channel.server import Reply
from deployments.replica.runners import RunnerContext, end_with
from deployments.replica.scoring import PairScorer


class ScoreRunner:
    """Runs scoring on one engine."""

    def __init__(self, scorer: PairScorer) -> None:
        self._scorer = scorer

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request.

        Raises:
            EngineError: it does not run.
        """
        scored = await self._scorer.score(header, orjson.loads(body), reply)
        answer = {
            "id": "score-" + header["request_id"].removeprefix("req_"),
            "object": "list",
            "created": int(time.time()),
            "model": self._scorer.model_id,
            "data": [{"index": i, "object": "score", "score": score} for i, score in enumerate(scored.scores)],
            "usage": scored.usage(),
        }
        end_with(reply, header, scored.summary(), orjson.dumps(answer))


def create_runner(context: RunnerContext) -> ScoreRunner | None:
    """Return what scores with an engine, None where its model cannot."""
    serving = context.find_serving("scores")
    return None if serving is None else ScoreRunner(PairScorer(serving, context.model_id))
