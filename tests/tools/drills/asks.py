"""What clients ask for, and what each answer must be.

Of a scripted engine that is known before: it says the words of the prompt, no two alike, so that a token
which is lost or comes twice is seen. Of vLLM it is what an undisturbed run has said to the same prompt and seed.
"""

import itertools
from collections.abc import Mapping
from typing import Any

from tests.serve.ingress import answer_to
from tests.service import CHAT, COLOUR
from tests.tools.drills.exchange import Kind
from tests.tools.drills.load import Ask

STREAM_TOKENS, WHOLE_TOKENS = 60, 8
VLLM_TOKENS = 120

Answers = Mapping[str, Mapping[str, str]]


class ScriptedAsks:
    """Requests to a scripted engine, each with words of its own."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, str]] = {}
        self._numbers = itertools.count(1)

    def next(self, kind: Kind, client: int) -> Ask:
        """Return a client's next request."""
        num_tokens = STREAM_TOKENS if kind == "stream" else WHOLE_TOKENS
        name = f"{kind}-{client}-{next(self._numbers)}"
        prompt = " ".join(f"{name}.{word}" for word in range(num_tokens))
        self.answers[name] = {"0.content": answer_to(prompt, num_tokens)}
        return Ask(name, kind, body_of(prompt, kind, max_tokens=num_tokens))


class ModelAsks:
    """Requests to vLLM: each client has one, which it repeats; between them they use what can be continued."""

    VARIANTS: tuple[dict[str, Any], ...] = (
        {"temperature": 0},
        {"temperature": 0.8, "seed": 7},
        {"temperature": 1.0, "top_p": 0.9, "seed": 11},
        {"temperature": 0.7, "seed": 3, "n": 2},
        {"temperature": 0, "response_format": {"type": "json_schema", "json_schema": {"name": "c", "schema": COLOUR}}},
        {"temperature": 0.8, "seed": 5, "logprobs": True, "top_logprobs": 2},
    )

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, str]] = {}
        """Filled from an undisturbed history by `learn`."""

    def next(self, kind: Kind, client: int) -> Ask:
        """Return a client's only request."""
        variant = self.VARIANTS[client % len(self.VARIANTS)]
        prompt = f"Tell a long story about {client} cats and the sea, with many words."
        tokens = VLLM_TOKENS if kind == "stream" else VLLM_TOKENS // 4
        if "response_format" in variant:
            prompt, tokens = "Name a colour and a size.", VLLM_TOKENS
        return Ask(f"{kind}-{client}", kind, body_of(prompt, kind, max_tokens=tokens, **variant))


def body_of(prompt: str, kind: Kind, **fields: Any) -> dict[str, Any]:
    """Return the body of a chat completion."""
    body = {"model": CHAT, "messages": [{"role": "user", "content": prompt}], **fields}
    if kind == "stream":
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body
