"""The contract of an engine, which turns a validated request into an answer.

Operations know nothing else about a model. Implemented by `deployments.models.client.remote` (a model deployment, over
its replicas' channels) and by the scripted twin in `tests`.
"""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from deployments.operations import Operation

Render = Literal["wire", "functions", "events"]
ServiceTier = Literal["default", "flex", "priority"]


class Adapter(NamedTuple):
    """A LoRA adapter of a model, by its own name; only `accounts` see it, or all if None."""

    name: str
    accounts: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What the ingress knows about a model without asking its engine.

    `operations` include responses, though engines only know chats. `max_model_len` is its context size in tokens.
    `created` is in Unix seconds. `reads_pairs` marks a cross-encoder: it reads the two texts of a pair together. `base`
    is the model of an adapter. Only `accounts` see it, or all if None. `adapters` are a model's own.
    `description` is the operator's, empty without one. With `holds_grammars` it can be held to the grammar of a custom
    tool's input.
    """

    id: str
    operations: frozenset[Operation]
    max_model_len: int
    created: int
    owned_by: str
    has_tools: bool = False
    holds_grammars: bool = False
    has_reasoning: bool = False
    has_images: bool = False
    reads_pairs: bool = False
    base: str | None = None
    accounts: frozenset[str] | None = None
    adapters: tuple[Adapter, ...] = ()
    dimensions: tuple[int, ...] | None = None  # Matryoshka sizes that embeddings may be cut to.
    aliases: tuple[str, ...] = ()
    description: str = ""

    @property
    def abilities(self) -> dict[str, bool]:
        """What not every model can, by the name that clients read."""
        return {"tools": self.has_tools, "reasoning": self.has_reasoning, "images": self.has_images}


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One validated request, on its way to an engine.

    `body` is the validated JSON, in vLLM's dialect of OpenAI's schema. `render` is the format of the answer: "wire" is
    bytes for the client (pieces of one or more server-sent events with `stream`, otherwise the whole JSON body),
    "functions" the same for a client that sent `functions`, the older `tools`, and "events" one JSON array of events a
    piece, as `deployments.models.contract.events` defines them. `cache_salt` keeps the prefix caches of accounts apart.
    Lower `priority` runs first. `affinity` names the prompt's prefix: requests with the same value go to the same
    replica if possible. `written`, for streams only, has the notes of all earlier pieces, from `Summary.written`: the
    answer continues after them, as if one engine had generated it, and its usage counts them. `service_tier` is named
    in the answer. A replica refuses a "flex" request that would have to wait. `adapter` is the model's adapter to use.
    """

    operation: Operation
    request_id: str
    body: bytes
    stream: bool = False
    render: Render = "wire"
    cache_salt: str = ""
    priority: int = 0
    affinity: str | None = None
    written: bytes = b""
    service_tier: ServiceTier = "default"
    adapter: str | None = None


@dataclass(slots=True)
class Usage:
    """The numbers of tokens of a request.

    `cached_tokens` are part of `prompt_tokens`, `reasoning_tokens` of `completion_tokens`.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


class ToolUse(NamedTuple):
    """How often a request used the service's tools; `code_sessions` are the containers that it started."""

    file_searches: int = 0
    web_searches: int = 0
    code_sessions: int = 0


NO_TOOL_USE = ToolUse()


@dataclass(slots=True)
class Summary:
    """An engine's report beside the answer; complete with its last piece.

    `usage` is None until the last piece, and for a request that never ran. `finish_reasons` has an entry per choice.
    `written` has the notes of the pieces so far, as `deployments.models.contract.steps` defines them. `queued_s` is how
    long the request waited for its first step in the engine, None if that is unknown.
    """

    usage: Usage | None = None
    finish_reasons: list[str] = field(default_factory=list)
    written: bytearray = field(default_factory=bytearray)
    tool_use: ToolUse = NO_TOOL_USE
    queued_s: float | None = None


class EngineStream(Protocol):
    """The answer to one request, piece by piece."""

    summary: Summary

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the answer as they come.

        Raises:
            EngineError: before the first piece if the request does not run, later if it breaks off.
        """

    async def aclose(self) -> None:
        """Abort the generation if it still runs; harmless otherwise. `summary` then has its usage so far."""


class Engine(Protocol):
    """A model that runs requests."""

    card: ModelCard

    def run(self, request: EngineRequest) -> EngineStream:
        """Return the answer's stream; nothing happens until it is iterated."""


class ModelDirectory(Protocol):
    """The models of the service."""

    def find(self, model_id: str) -> Engine | None:
        """Return the engine behind a model id or alias, None when there is none."""

    def cards(self) -> list[ModelCard]:
        """Return every model's card, in the order of the configuration."""


def render_salt(account: str, share: float, own: str | None) -> str:
    """Return the cache salt that names an account, its share of an engine, and the client's own salt if it sent one.

    vLLM keeps the salt with each request of any kind, so an engine knows who pays. The account's name cannot be
    guessed. Colons join the parts; no part holds one.
    """
    salt = f"{account}:{share:g}"
    return salt if own is None else f"{salt}:{hashlib.sha256(own.encode()).hexdigest()[:32]}"


def payer_of(salt: str | None) -> tuple[str, float]:
    """Return the account and the share in a salt."""
    account, _, rest = (salt or "").partition(":")
    share = rest.partition(":")[0]
    return account, float(share) if share else 1.0
