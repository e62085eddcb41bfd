"""Keywords inside the replica."""

from typing import Any

import orjson

from deployments.channel.server import Reply
from deployments.replica.runners import RunnerContext


class KeywordRunner:
    """Finds keywords on one engine; a word says the more, the longer it is."""

    def __init__(self, model_id: str) -> None:
        self._model_id = model_id

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request."""
        fields = orjson.loads(body)
        words = sorted(set(fields["input"].split()), key=lambda word: (-len(word), word))
        reply.write(orjson.dumps({"model": self._model_id, "keywords": words[: fields.get("top_n", 2)]}))
        reply.end({"usage": [len(body) // 4, 0, 0, 0], "finish_reasons": []})


def create_runner(context: RunnerContext) -> KeywordRunner | None:
    """Return what finds keywords on an engine, None where its model cannot."""
    return None if context.find_serving("pooling") is None else KeywordRunner(context.model_id)
