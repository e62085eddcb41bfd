"""Tokenizing inside the replica, over vLLM's own serving class, with the engine's chat template and tokenizer.

It does not reach the engine, so it does not wait for a turn among the requests that do.
"""

from typing import Any

import orjson
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.tokenize.protocol import TokenizeChatRequest, TokenizeCompletionRequest
from vllm.entrypoints.serve.tokenize.serving import ServingTokenization

from deployments.channel.server import Reply
from deployments.models.contract.engine import Usage
from deployments.replica.refusals import refusal_of, refused
from deployments.replica.runners import RunnerContext, end_with, summary_of
from deployments.replica.tokenized import OWNER


class TokenizeRunner:
    """Tokenizes with one engine's tokenizer."""

    def __init__(self, serving: ServingTokenization, model_id: str) -> None:
        self._serving = serving
        self._model_id = model_id

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request, or raise an `EngineError`."""
        OWNER.set(header["cache_salt"])
        fields = {name: value for name, value in orjson.loads(body).items() if value is not None}
        param = "messages" if "messages" in fields else "prompt"
        for name in ("reasoning_effort", "user"):
            fields.pop(name, None)
        fields["model"] = self._model_id
        kind = TokenizeChatRequest if param == "messages" else TokenizeCompletionRequest
        with refused(param):
            answer = await self._serving.create_tokenize(kind.model_validate(fields), None)
        if isinstance(answer, ErrorResponse):
            raise refusal_of(answer, param)
        end_with(reply, header, summary_of(Usage()), orjson.dumps(answer.model_dump()))


def create_runner(context: RunnerContext) -> TokenizeRunner:
    """Return the runner of tokenizing; every model supports it."""
    return TokenizeRunner(context.find_serving("tokenization"), context.model_id)
