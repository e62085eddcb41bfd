"""The resources of the API, by which the OpenAPI document and the reference group the routes."""

import re
from collections.abc import Iterable
from typing import NamedTuple


class Resource(NamedTuple):
    """A group of routes: those whose path starts with one of `prefixes`. `guide` is the page to read first."""

    name: str
    description: str
    prefixes: tuple[str, ...]
    guide: str = ""

    @property
    def slug(self) -> str:
        """The resource's part of an address."""
        return re.sub(r"[^a-z]+", "-", self.name.lower())


_ORGANIZATION = "/v1/organization"
RESOURCES = (
    Resource(
        "Chat completions",
        "A model's answer to a conversation, as a whole or as a stream, with tools and structured output.",
        ("/v1/chat",),
        "guides/chat",
    ),
    Resource(
        "Responses",
        "Answers that the service stores and continues, with its own tools, in the background if you like.",
        ("/v1/responses",),
        "guides/responses",
    ),
    Resource(
        "Conversations",
        "Stored conversations, which responses read and add to.",
        ("/v1/conversations",),
        "guides/responses",
    ),
    Resource(
        "Messages", "The same answers in the format of Anthropic's Messages API.", ("/v1/messages",), "guides/clients"
    ),
    Resource("Completions", "The continuation of a plain text.", ("/v1/completions",), "guides/chat"),
    Resource("Embeddings", "Vectors for texts.", ("/v1/embeddings",), "guides/embeddings"),
    Resource(
        "Rerank and score",
        "How well texts match a query.",
        ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score"),
        "guides/rerank",
    ),
    Resource("Moderations", "The categories of harm in a text.", ("/v1/moderations",), "guides/moderations"),
    Resource(
        "Tokens",
        "The tokens of a text or a chat, and back.",
        ("/v1/tokenize", "/tokenize", "/v1/detokenize", "/detokenize"),
        "guides/tokens",
    ),
    Resource("Models", "The models that a key may use.", ("/v1/models",)),
    Resource(
        "Files", "Uploaded files, for batches, responses and searches.", ("/v1/files",), "guides/batches-and-files"
    ),
    Resource(
        "Uploads", "Large files, uploaded in parts.", ("/v1/uploads",), "guides/batches-and-files#large-files-in-parts"
    ),
    Resource("Batches", "Files of requests that run in the background.", ("/v1/batches",), "guides/batches-and-files"),
    Resource(
        "Vector stores",
        "Files that are indexed, so that responses and you can search them.",
        ("/v1/vector_stores",),
        "guides/file-search",
    ),
    Resource(
        "Containers",
        "Sandboxes with the files that the code interpreter works on.",
        ("/v1/containers",),
        "guides/code-interpreter",
    ),
    Resource(
        "Webhooks",
        "Endpoints of yours that receive events, such as the end of a batch.",
        ("/v1/webhook_endpoints", "/v1/webhook_event_types"),
        "guides/webhooks",
    ),
    Resource(
        "Usage and costs",
        "Tokens, calls and costs by time, model and key; the request log; limits and latencies.",
        tuple(f"{_ORGANIZATION}/{noun}" for noun in ("usage", "costs", "requests", "limits", "latency")),
        "operate/usage",
    ),
    Resource(
        "API keys",
        "Keys with limits, scopes and expiry. These routes need an admin key.",
        (f"{_ORGANIZATION}/admin/keys", f"{_ORGANIZATION}/admin_api_keys", f"{_ORGANIZATION}/projects"),
        "operate/keys-and-limits",
    ),
    Resource(
        "Administration",
        "The batches of all accounts, and the audit log. These routes need an admin key.",
        (f"{_ORGANIZATION}/admin/batches", f"{_ORGANIZATION}/audit_logs"),
        "operate/usage",
    ),
    Resource(
        "Service",
        "Health for load balancers and probes, metrics, and this documentation. These routes need no key.",
        ("/livez", "/readyz", "/ping", "/health", "/metrics", "/openapi.json", "/docs"),
        "operate/monitoring",
    ),
)


def resource_of(path: str) -> Resource:
    """Return the resource that a path belongs to; a new one, named after the path, where none has it."""
    fitting = [(len(start), one) for one in RESOURCES for start in one.prefixes if _is_below(path, start)]
    if fitting:
        return max(fitting, key=lambda pair: pair[0])[1]
    noun = path.removeprefix("/v1").strip("/").partition("/")[0]
    return Resource(noun.replace("_", " ").capitalize(), "", (path,))


def resources_of(paths: Iterable[str]) -> list[Resource]:
    """Return the resources of some paths, in the order of the reference."""
    found = dict.fromkeys(resource_of(path) for path in paths)
    return [*(one for one in RESOURCES if one in found), *(one for one in found if one not in RESOURCES)]


def _is_below(path: str, start: str) -> bool:
    return path == start or path.startswith(f"{start}/")
