"""What the scripted engines of the HTTP tests say."""

import struct
from base64 import b64encode

import orjson

from deployments.models.contract.engine import EngineRequest, Usage
from deployments.models.contract.events import Event, Finished, TextDelta
from deployments.models.contract.render import ChatBody, ChatChunks, EventLines, usage_to_wire
from serve_app.operations.completions import CompletionBody, CompletionChunks
from tests.twins.engine import Noted, Script, written_of

MODEL = "demo/chat"
EMBEDDING_MODEL = "all-minilm-l6-v2"
SECRET = "sk-manta-0123456789abcdefghijklmnopqrstuvwxyz"
USAGE = Usage(prompt_tokens=9, completion_tokens=3, cached_tokens=4)
WORDS = ("Hello", " there", "!")
VECTOR = (0.25, -0.5, 1.0)


def said(*words: str, reason: str = "stop", num_choices: int = 1) -> list[list[Event]]:
    """Return the events of an answer, a list for each piece."""
    pieces: list[list[Event]] = []
    for choice in range(num_choices):
        pieces += [[TextDelta("text", choice, word)] for word in words]
        pieces.append([Finished("finished", choice, reason)])  # type: ignore[arg-type]
    return pieces


def pieces(request: EngineRequest, events: list[list[Event]], usage: Usage = USAGE) -> list[bytes | Noted]:
    """Return what an engine would send for a request that it answers with the events.

    The token of a piece of events is its number among the pieces.
    """
    body = orjson.loads(request.body)
    include_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    completion_id = "cmpl-1"
    if request.operation == "completions":
        renderer = (
            CompletionChunks(completion_id, MODEL, 1, include_usage=include_usage)
            if request.stream
            else CompletionBody(completion_id, MODEL, 1)
        )
    elif request.render == "events":
        renderer = EventLines()
    elif request.stream:
        tier = request.service_tier
        options = {"service_tier": tier, "has_functions": request.render == "functions"}
        renderer = ChatChunks(completion_id, MODEL, 1, include_usage=include_usage, **options)
    else:
        options = {"service_tier": request.service_tier, "has_functions": request.render == "functions"}
        renderer = ChatBody(completion_id, MODEL, 1, **options)
    rendered = [renderer.events(piece) for piece in events]
    if request.render == "events":
        return [Noted([number], piece) for number, piece in enumerate(rendered)][len(written_of(request)) :]
    return [piece for piece in [*rendered, renderer.finish(usage)] if piece]


def embedding(request: EngineRequest) -> bytes:
    """Return an embedding list with the same vector for every input."""
    body = orjson.loads(request.body)
    inputs = body["input"] if isinstance(body["input"], list) else [body["input"]]
    packed = b64encode(struct.pack(f"<{len(VECTOR)}f", *VECTOR)).decode()
    vector = packed if body.get("encoding_format") == "base64" else list(VECTOR)
    usage = {key: usage_to_wire(USAGE)[key] for key in ("prompt_tokens", "total_tokens")}
    return orjson.dumps(
        {
            "object": "list",
            "data": [{"object": "embedding", "index": i, "embedding": vector} for i in range(len(inputs))],
            "model": EMBEDDING_MODEL,
            "usage": usage,
        }
    )


def tokens(request: EngineRequest) -> bytes:
    """Return a token for each character of a text, or the text of such tokens."""
    body = orjson.loads(request.body)
    if request.operation == "detokenize":
        return orjson.dumps({"prompt": "".join(map(chr, body["tokens"]))})
    text = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
    strings = list(text) if body.get("return_token_strs") else None
    listed = {"count": len(text), "max_model_len": 4096, "tokens": [ord(character) for character in text]}
    return orjson.dumps({**listed, "token_strs": strings})


def scores(request: EngineRequest) -> bytes:
    """Return scores that are the higher, the longer a document is, or the documents by them."""
    body = orjson.loads(request.body)
    documents = body["documents"]
    usage = {"prompt_tokens": 9, "total_tokens": 9}
    if request.operation == "score":
        data = [{"index": i, "object": "score", "score": len(text) / 100} for i, text in enumerate(documents)]
        return orjson.dumps(
            {"id": "score-1", "object": "list", "created": 1, "model": EMBEDDING_MODEL, "data": data, "usage": usage}
        )
    best = sorted(enumerate(documents), key=lambda one: -len(one[1]))[: body["top_n"]]
    results = [{"index": i, "relevance_score": len(text) / 100} for i, text in best]
    if body["return_documents"]:
        results = [{**one, "document": {"text": documents[one["index"]]}} for one in results]
    return orjson.dumps({"id": "rerank-1", "model": EMBEDDING_MODEL, "results": results, "usage": usage})


def answer(request: EngineRequest) -> Script:
    """Answer every request as a healthy engine would."""
    if request.operation == "embeddings":
        return Script([embedding(request)], usage=Usage(prompt_tokens=9))
    if request.operation in ("tokenize", "detokenize"):
        return Script([tokens(request)], usage=Usage())
    if request.operation in ("rerank", "score"):
        return Script([scores(request)], usage=Usage(prompt_tokens=9))
    num_choices = orjson.loads(request.body).get("n") or 1
    return Script(pieces(request, said(*WORDS, num_choices=num_choices)), usage=USAGE)


def telling(world, events=None, usage=USAGE):
    """Have the engine answer with these events, under the id of the request, as a real one does."""

    def play(request):
        own = f"chatcmpl-{request.request_id.removeprefix('req_')}".encode()
        steps = pieces(request, events or said(*WORDS), usage)
        steps = [one if isinstance(one, Noted) else one.replace(b"cmpl-1", own) for one in steps]
        return Script(steps, usage=usage)

    world.chat.script = play
