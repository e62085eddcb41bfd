"""Prompts that are all different, so that a prefix cache cannot answer them, and the requests made of them."""

import random
from dataclasses import dataclass

import orjson

from tests.tools.bench.client import Request

WORDS = (
    *("harbour", "lantern", "copper", "window", "orchard", "signal", "meadow", "thunder", "basket", "violin"),
    *("marble", "compass", "river", "saddle", "candle", "engine", "winter", "garden", "mirror", "anchor"),
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go: an address, the model's name there, and a key where one is needed.

    `is_stored` says whether the service keeps a response; other routes have no such thing.
    """

    host: str
    port: int
    model: str
    api_key: str | None = None
    path: str = "/v1/chat/completions"
    is_stored: bool = True

    @property
    def base_url(self) -> str:
        """What OpenAI's client takes."""
        return f"http://{self.host}:{self.port}/v1"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a request looks like. `num_words` sets the prompt's length; `may_stop` allows shorter answers."""

    num_words: int
    output_tokens: int
    is_stream: bool
    may_stop: bool = False


def create_prompt(rng: random.Random, num_words: int) -> str:
    """Return words at random."""
    return " ".join(rng.choices(WORDS, k=num_words))


def render_request(target: Target, shape: Shape, prompt: str) -> Request:
    """Return the request that asks `target` for a completion of `prompt`, ready to be sent."""
    content = orjson.dumps(create_body(target, shape, prompt))
    head = [
        f"POST {target.path} HTTP/1.1",
        f"Host: {target.host}:{target.port}",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
    ]
    if target.api_key is not None:
        head.append(f"Authorization: Bearer {target.api_key}")
    payload = "\r\n".join(head).encode() + b"\r\n\r\n" + content
    min_tokens = 1 if shape.may_stop else shape.output_tokens
    return Request(payload, shape.is_stream, min_tokens, shape.output_tokens)


def create_body(target: Target, shape: Shape, prompt: str) -> dict[str, object]:
    """Return what the route of the target takes."""
    body: dict[str, object] = {"model": target.model, "temperature": 0.8}
    if target.path.endswith("/responses"):
        body |= {"input": prompt, "max_output_tokens": shape.output_tokens, "store": target.is_stored}
        return body | ({"stream": True} if shape.is_stream else {})
    body |= {"messages": [{"role": "user", "content": prompt}], "max_tokens": shape.output_tokens}
    return body | ({"stream": True, "stream_options": {"include_usage": True}} if shape.is_stream else {})


def create_requests(target: Target, shape: Shape, num: int, seed: str) -> list[Request]:
    """Return `num` requests; the same for every target when the seed is the same."""
    rng = random.Random(seed)
    return [render_request(target, shape, create_prompt(rng, shape.num_words)) for _ in range(num)]
