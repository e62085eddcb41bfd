"""Embeddings inside the replica, over vLLM's own serving class; longer input than the context is truncated."""

import base64
from typing import Any

import numpy as np
import orjson
from vllm.entrypoints.pooling.embed.protocol import EmbeddingCompletionRequest
from vllm.entrypoints.pooling.embed.serving import ServingEmbedding

from deployments.channel.server import Reply
from deployments.models.contract.engine import Usage
from deployments.replica.refusals import refused
from deployments.replica.runners import RunnerContext, end_with, summary_of

TRUNCATE_TO_CONTEXT = -1
_PASSED_ON = ("dimensions", "truncate_prompt_tokens", "truncation_side", "add_special_tokens", "use_activation")
_FORM_OF_BYTES = ("embed_dtype", "endianness")


class EmbeddingRunner:
    """Runs embeddings on one engine."""

    def __init__(self, serving: ServingEmbedding, model_id: str) -> None:
        self._serving = serving
        self._model_id = model_id

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request, or raise an `EngineError`."""
        fields = orjson.loads(body)
        as_floats = fields.get("encoding_format", "float") != "base64"
        passed_on = _PASSED_ON if as_floats else _PASSED_ON + _FORM_OF_BYTES
        request = {
            "model": self._model_id,
            "input": fields["input"],
            "encoding_format": "base64",
            "truncate_prompt_tokens": TRUNCATE_TO_CONTEXT,
            "cache_salt": header["cache_salt"] or None,
            "priority": header["priority"],
            **{name: fields[name] for name in passed_on if fields.get(name) is not None},
        }
        with refused("input"):
            response = await self._serving(EmbeddingCompletionRequest.model_validate(request))
        vectors = orjson.loads(bytes(response.body))
        prompt_tokens = vectors["usage"]["prompt_tokens"]
        answer = {
            "object": "list",
            "data": [
                {
                    "object": "embedding",
                    "index": item["index"],
                    "embedding": _floats(item["embedding"]) if as_floats else item["embedding"],
                }
                for item in vectors["data"]
            ],
            "model": self._model_id,
            "usage": {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens},
        }
        summary = summary_of(Usage(prompt_tokens))
        end_with(reply, header, summary, orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY))


def create_runner(context: RunnerContext) -> EmbeddingRunner | None:
    """Return the runner of embeddings; None if the model does not support them."""
    serving = context.find_serving("embedding")
    return None if serving is None else EmbeddingRunner(serving, context.model_id)


def _floats(encoded: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the vector (dimensions,) from base64 of little-endian 32-bit floats."""
    return np.frombuffer(base64.b64decode(encoded), dtype="<f4")
