"""Scores pairs of texts inside the replica, over vLLM's own serving class.

A cross-encoder reads both texts of a pair together. An embedding model reads each text once, and the score is the
cosine of the two vectors. `rerank` sorts documents by the same scores.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from copy import copy
from dataclasses import dataclass
from typing import Any

import orjson
from vllm.entrypoints.pooling.scoring.protocol import ScoreQueriesDocumentsRequest
from vllm.entrypoints.pooling.scoring.serving import ServingScores

from deployments.channel.server import Reply
from deployments.models.contract.engine import Usage
from deployments.replica.refusals import refused
from deployments.replica.renderers import cut_text
from deployments.replica.runners import RunnerContext, end_with, summary_of

_TO_CONTEXT = -1
_DROPPED = ("top_n", "return_documents")
_TEXTS = ("queries", "documents")
_PER_TEXT = ("max_tokens_per_doc", "max_tokens_per_query")


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of a request's documents, in order, and the number of tokens that the engine read."""

    scores: list[float]
    prompt_tokens: int

    def summary(self) -> dict[str, Any]:
        """Return the summary that ends the answer."""
        return summary_of(Usage(self.prompt_tokens))

    def usage(self) -> dict[str, int]:
        """Return the usage on the wire."""
        return {"prompt_tokens": self.prompt_tokens, "total_tokens": self.prompt_tokens}


class PairScorer:
    """Scores pairs of texts with one engine."""

    def __init__(self, serving: ServingScores, model_id: str) -> None:
        self.model_id = model_id
        self._serving = serving

    async def score(self, header: dict[str, Any], fields: dict[str, Any], reply: Reply) -> Scored:
        """Return the scores for a body, or raise EngineError; ends the reply with the usage if the client leaves."""
        request = {"truncate_prompt_tokens": _TO_CONTEXT, **fields, "model": self.model_id}
        request |= {"cache_salt": header["cache_salt"] or None, "priority": header["priority"]}
        for name in _DROPPED:
            request.pop(name, None)
        for name in _TEXTS:
            request[name] = [cut_text(text, self._serving.max_model_len) for text in request[name]]
        for name in _PER_TEXT:
            if request.get(name, 0) >= self._serving.max_model_len:
                del request[name]  # vLLM refuses these values; the context cuts the text anyway.
        serving = copy(self._serving)
        serving.engine_client = client = _CountingClient(self._serving.engine_client)
        with refused("documents"):
            try:
                answer = await serving(ScoreQueriesDocumentsRequest.model_validate(request))
            except asyncio.CancelledError:
                reply.end(summary_of(Usage(client.prompt_tokens)))
                raise
        scores = [pair["score"] for pair in orjson.loads(bytes(answer.body))["data"]]
        return Scored(scores, client.prompt_tokens)


class _CountingClient:
    """Stands in for the engine during one request, and counts each text once; vLLM's own usage does not."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.prompt_tokens = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def encode(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        async for output in self._engine.encode(*args, **kwargs):
            self.prompt_tokens += len(output.prompt_token_ids)
            yield output


class ScoreRunner:
    """Runs scoring on one engine."""

    def __init__(self, scorer: PairScorer) -> None:
        self._scorer = scorer

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request, or raise an `EngineError`."""
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
    """Return the runner of scoring; None if the model does not support it."""
    serving = context.find_serving("scores")
    return None if serving is None else ScoreRunner(PairScorer(serving, context.model_id))
