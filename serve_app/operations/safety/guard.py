"""A model that is asked what it makes of texts, for safety policies and for moderations."""

import secrets

import orjson

from deployments.models.contract.engine import EngineRequest, ModelDirectory, Usage
from deployments.models.contract.errors import EngineDied
from deployments.operations import Operation


class GuardModel:
    """A model of the service's own that answers one question about texts; `{text}` in `prompt` is the text."""

    def __init__(self, model: str, prompt: str, max_tokens: int, directory: ModelDirectory) -> None:
        self._model = model
        self._prompt = prompt
        self._max_tokens = max_tokens
        self._directory = directory

    async def ask(self, text: str, request: EngineRequest) -> tuple[str, Usage]:
        """Return what the model says of a text and the tokens that it took; `request` lends its salt and priority.

        Raises:
            EngineError: it could not be asked.
        """
        engine = self._directory.find(self._model)
        if engine is None:
            raise EngineDied("The guard model of this safety policy is not deployed.")
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": self._prompt.replace("{text}", text)}],
            "max_tokens": self._max_tokens,
            "temperature": 0,
        }
        stream = engine.run(
            EngineRequest(
                operation=Operation.CHAT,
                request_id=f"{request.request_id}-{secrets.token_hex(4)}",  # The guarded one may still be running.
                body=orjson.dumps(body),
                cache_salt=request.cache_salt,
                priority=request.priority,
            )
        )
        try:
            answer = orjson.loads(b"".join([piece async for piece in stream]))
        finally:
            await stream.aclose()
        said: str = answer["choices"][0]["message"]["content"] or ""
        return said, stream.summary.usage or Usage()
