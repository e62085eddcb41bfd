"""The vectors of passages and queries, from the service's embedding models."""

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import orjson

from deployments.models.contract.engine import ModelDirectory
from deployments.models.contract.errors import EngineDied, EngineError, Overloaded
from deployments.state.identity.principal import Principal
from deployments.tools.documents.chunks import Chunk
from deployments.tools.search_index.rows import Vectors
from serve_app.errors.capacity import Unavailable
from serve_app.errors.translate import translate_engine_error
from serve_app.operations.embeddings import EmbeddingOperation
from serve_app.operations.routing import CacheSalt
from serve_app.schemas.base import estimate_tokens
from serve_app.schemas.embeddings import EmbeddingRequest

MODEL_AWAY = "The embedding model of this vector store cannot be asked right now. Please retry your request."
_MAX_CALL_TOKENS = 250_000
_MAX_TRIES = 60
_SHARE_OF_CONTEXT = 0.4
"""The part of a model's context that a passage fills: a vector captures less of a longer text."""


class Embedder:
    """The embedding models of this service. A key that may search files needs no scope for the models."""

    def __init__(
        self, directory: ModelDirectory, salt: CacheSalt, inputs_per_call: int = 256, retry_s: float = 1.0
    ) -> None:
        self._directory = directory
        self._operation = EmbeddingOperation(directory, salt)
        self._inputs_per_call = inputs_per_call
        self._retry_s = retry_s

    def passage_tokens(self, model: str) -> int:
        """Return the size of a model's passages in tokens. Raises Unavailable if the model is gone."""
        engine = self._directory.find(model)
        if engine is None:
            raise Unavailable(MODEL_AWAY)
        return max(16, int(_SHARE_OF_CONTEXT * engine.card.max_model_len))

    def tokens_of(self, model: str, chunk: Chunk) -> int:
        """Return about how many tokens a model reads of a chunk. Raises Unavailable if the model is gone."""
        engine = self._directory.find(model)
        if engine is None:
            raise Unavailable(MODEL_AWAY)
        # A passage is cut where the model's context ends.
        estimate = max(chunk.num_tokens, estimate_tokens(chunk.passages()))
        return min(estimate, len(chunk.starts) * engine.card.max_model_len)

    async def embed(
        self,
        model: str,
        texts: Sequence[str],
        principal: Principal,
        *,
        request_id: str,
        priority: int = 0,
        retries: bool = False,
    ) -> tuple[Vectors, int]:
        """Return the vectors of texts, as rows, and the number of their tokens.

        A call of the model has bounds on texts and tokens. With `retries` it waits while the model is busy.

        Raises:
            ApiError: the model is gone or busy, or it failed.
        """
        vectors: list[Vectors] = []
        num_tokens = 0
        for number, some in enumerate(self._calls(texts)):
            body: dict[str, object] = {"model": model, "input": some, "encoding_format": "base64"}
            tries = _MAX_TRIES if retries else 1
            rows, used = await self._call(body, principal, f"{request_id}-{number}", priority, tries)
            vectors.append(rows)
            num_tokens += used
        return np.concatenate(vectors), num_tokens

    def _calls(self, texts: Sequence[str]) -> list[list[str]]:
        calls: list[list[str]] = [[]]
        num_tokens = 0
        for text in texts:
            tokens = estimate_tokens([text])
            if len(calls[-1]) >= self._inputs_per_call or (calls[-1] and num_tokens + tokens > _MAX_CALL_TOKENS):
                calls.append([])
                num_tokens = 0
            # White space has no meaning, and an empty text is refused.
            calls[-1].append(text if text.strip() else ".")
            num_tokens += tokens
        return calls

    async def _call(
        self, body: dict[str, object], principal: Principal, request_id: str, priority: int, tries: int
    ) -> tuple[Vectors, int]:
        raw = orjson.dumps(body)
        request = EmbeddingRequest.model_validate(body)
        anyone = replace(principal, models=None)
        while True:
            tries -= 1
            outcome = self._operation.run(request, raw, anyone, request_id=request_id, priority=priority)
            try:
                answer = orjson.loads(b"".join([piece async for piece in outcome.stream]))
            except (Overloaded, EngineDied) as error:
                if tries == 0:
                    raise translate_engine_error(error) from None
                await asyncio.sleep(self._retry_s)
            except EngineError as error:
                raise translate_engine_error(error) from None
            else:
                rows = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in answer["data"]]
                return np.stack(rows), answer["usage"]["total_tokens"]
            finally:
                await outcome.stream.aclose()
