"""Detokenizing inside the replica, over vLLM's own serving class."""

from typing import Any

import orjson
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.tokenize.protocol import DetokenizeRequest
from vllm.entrypoints.serve.tokenize.serving import ServingTokenization

from deployments.channel.server import Reply
from deployments.models.contract.engine import Usage
from deployments.models.contract.errors import RequestRejected
from deployments.replica.refusals import refusal_of, refused
from deployments.replica.runners import RunnerContext, end_with, summary_of


class DetokenizeRunner:
    """Detokenizes with one engine's tokenizer."""

    def __init__(self, serving: ServingTokenization, model_id: str) -> None:
        self._serving = serving
        self._model_id = model_id
        self._vocabulary_size = len(serving.renderer.get_tokenizer())

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request, or raise an `EngineError`."""
        tokens = orjson.loads(body)["tokens"]
        if max(tokens) >= self._vocabulary_size:  # A tokenizer would silently skip it.
            message = f"Token id {max(tokens)} is out of vocabulary: this model has {self._vocabulary_size} tokens."
            raise RequestRejected(message, "tokens", "invalid_value")
        with refused("tokens"):
            request = DetokenizeRequest(model=self._model_id, tokens=tokens)
            answer = await self._serving.create_detokenize(request, None)
        if isinstance(answer, ErrorResponse):
            raise refusal_of(answer, "tokens")
        end_with(reply, header, summary_of(Usage()), orjson.dumps(answer.model_dump()))


def create_runner(context: RunnerContext) -> DetokenizeRunner:
    """Return the runner of detokenizing; every model supports it."""
    return DetokenizeRunner(context.find_serving("tokenization"), context.model_id)
