"""Scores of pairs of texts, over vLLM's own serving class; `rerank` and `score` make their answers of them.

A cross-encoder reads both texts of a pair together. An embedding model reads each text once, and the score is the
cosine of the two vectors.
"""

import asyncio
from collections.abc import AsyncIterator
from copy import copy
from dataclasses import dataclass
from typing import Any

import orjson
from vllm.entrypoints.pooling.scoring.protocol import ScoreQueriesDocumentsRequest
from vllm.entrypoints.pooling.scoring.serving import ServingScores

from deployments.channel.server import Reply
from deployments.replica.long_prompts import cut_text
from deployments.replica.refusals import refused

_TO_CONTEXT = -1
_DROPPED = ("top_n", "return_documents")
_TEXTS = ("queries", "documents")
_PER_TEXT = ("max_tokens_per_doc", "max_tokens_per_query")


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of a request's documents, in their order, and the tokens that the engine read."""

    scores: list[float]
    prompt_tokens: int

    def summary(self) -> dict[str, Any]:
        """Return the summary of an answer made of them."""
        return _summary(self.prompt_tokens)

    def usage(self) -> dict[str, int]:
        """Return the usage on the wire."""
        return {"prompt_tokens": self.prompt_tokens, "total_tokens": self.prompt_tokens}


class PairScorer:
    """Scores pairs of texts with one engine."""

    def __init__(self, serving: ServingScores, model_id: str) -> None:
        self.model_id = model_id
        self._serving = serving

    async def score(self, header: dict[str, Any], fields: dict[str, Any], reply: Reply) -> Scored:
        """Return the scores for a body; a client that leaves gets the usage so far.

        Raises:
            EngineError: it does not run.
        """
        request = {"truncate_prompt_tokens": _TO_CONTEXT, **fields, "model": self.model_id}
        request |= {"cache_salt": header["cache_salt"] or None, "priority": header["priority"]}
        for name in _DROPPED:
            request.pop(name, None)
        for name in _TEXTS:
            request[name] = [cut_text(text, self._serving.max_model_len) for text in request[name]]
        for name in _PER_TEXT:
            if request.get(name, 0) >= self._serving.max_model_len:
                del request[name]  # The context cuts it anyway; vLLM would refuse it.
        serving = copy(self._serving)
        serving.engine_client = client = _CountingClient(self._serving.engine_client)
        with refused("documents"):
            try:
                answer = await serving(ScoreQueriesDocumentsRequest.model_validate(request))
            except asyncio.CancelledError:
                reply.end(_summary(client.prompt_tokens))
                raise
        scores = [pair["score"] for pair in orjson.loads(bytes(answer.body))["data"]]
        return Scored(scores, client.prompt_tokens)


class _CountingClient:
    """Replaces the engine while one request's texts are read; counts each once, as vLLM's own usage does not."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.prompt_tokens = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def encode(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        async for output in self._engine.encode(*args, **kwargs):
            self.prompt_tokens += len(output.prompt_token_ids)
            yield output


def _summary(prompt_tokens: int) -> dict[str, Any]:
    return {"usage": [prompt_tokens, 0, 0, 0], "finish_reasons": []}
