"""A vector store filled with notes, what is found in it by hand, and a scripted model that searches it."""

import io
import re
import struct
import zlib
from base64 import b64encode

import orjson
import pytest

from serve_app.operations.vector_stores.indexing import Indexer
from tests.contract.http.answers import EMBEDDING_MODEL, answer
from tests.contract.http.response_calls import calls, of_type, stream_of
from tests.twins.engine import Script
from tests.twins.legal import fold

NOTES = {
    "moon.md": "The moon is made of cheese. Nobody has eaten it.",
    "sea.md": "Whales sing in the deep sea. Ships hear them at night.",
    "code.py": "def frobnicate(zorkmid_7431): return zorkmid_7431",
}


def vector_of(text: str) -> list[float]:
    """Return a vector that texts with the same words share: a stand-in for meaning."""
    vector = [0.01] * 64
    for word in re.findall(r"\w+", text.lower()):
        vector[zlib.crc32(word.encode()) % 64] += 1.0
    return vector


def embed(request) -> Script:
    if request.operation != "embeddings":
        return answer(request)
    inputs = orjson.loads(request.body)["input"]
    data = [
        {"object": "embedding", "index": n, "embedding": b64encode(struct.pack("<64f", *vector_of(text))).decode()}
        for n, text in enumerate(inputs)
    ]
    usage = {"prompt_tokens": 3 * len(inputs), "total_tokens": 3 * len(inputs)}
    return Script([orjson.dumps({"object": "list", "data": data, "model": EMBEDDING_MODEL, "usage": usage})])


async def run(indexer: Indexer) -> None:
    """Do all that there is to do."""
    while await indexer.step():
        pass


async def upload(world, name: str, content: str | bytes) -> str:
    content = content.encode() if isinstance(content, str) else content
    return (await world.client().files.create(file=(name, io.BytesIO(content)), purpose="assistants")).id


async def filled_store(world, indexer, files, **values):
    """Return a store that holds these files, indexed."""
    world.embeddings.script = embed
    ids = [await upload(world, name, content) for name, content in files.items()]
    store = await world.client().vector_stores.create(file_ids=ids, **values)
    await run(indexer)
    return await world.client().vector_stores.retrieve(store.id)


@pytest.fixture
async def store(world, vector_stores, indexer):
    return await filled_store(world, indexer, NOTES)


async def found(world, store, query, **body):
    page = await world.client().vector_stores.search(store.id, query=query, **body)
    return [(hit.filename, hit.content[0].text) for hit in page.data]


def tool_of(store, **values):
    return {"type": "file_search", "vector_store_ids": [store.id], **values}


def searches(*queries, words=()):
    """Return the events of a model that searches for these."""
    return calls(("file_search", {"queries": queries}), words=words)


async def stream(world, shelf, **body):
    return await stream_of(world, {"input": "x", "tools": [tool_of(shelf)], **body})


async def respond(world, shelf, **body):
    return fold(await stream(world, shelf, **body))


def calls_of(response):
    return of_type(response, "file_search_call")
