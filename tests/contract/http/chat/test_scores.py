"""Rerank and score over HTTP, in the shapes that clients of Jina, Cohere and vLLM send and read."""

import orjson
import pytest

from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, SECRET
from tests.contract.http.batch_calls import finish, jsonl, submit

DOCUMENTS = ["bb", "a", "cccc"]


async def post(world, path, **body):
    async with world.http() as http:
        return await http.post(path, json={"model": EMBEDDING_MODEL, **body})


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
async def test_jinas_body_ranks_documents(world, path):
    answer = await post(world, path, query="q", documents=[{"text": text} for text in DOCUMENTS], top_n=2)
    assert answer.json() == {
        "id": "rerank-1",
        "model": EMBEDDING_MODEL,
        "results": [
            {"index": 2, "relevance_score": 0.04, "document": {"text": "cccc"}},
            {"index": 0, "relevance_score": 0.02, "document": {"text": "bb"}},
        ],
        "usage": {"prompt_tokens": 9, "total_tokens": 9},
    }


async def test_coheres_body_ranks_documents(world):
    body = {"query": "q", "documents": DOCUMENTS, "top_n": 1, "return_documents": False, "max_tokens_per_doc": 4096}
    assert (await post(world, "/v2/rerank", **body)).json()["results"] == [{"index": 2, "relevance_score": 0.04}]
    assert orjson.loads(world.embeddings.requests[0].body)["max_tokens_per_doc"] == 4096


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
@pytest.mark.parametrize("names", [("text_1", "text_2"), ("queries", "documents")])
async def test_vllms_bodies_are_scored(world, path, names):
    left, right = names
    answer = (await post(world, path, **{left: "q", right: DOCUMENTS})).json()
    assert [(pair["index"], pair["object"], pair["score"]) for pair in answer["data"]] == [
        (0, "score", 0.02),
        (1, "score", 0.01),
        (2, "score", 0.04),
    ]
    assert answer["object"] == "list"


async def test_texts_count_as_those_of_embeddings_do(world):
    world.principal(SECRET, tokens_per_minute=1000)
    answer = await post(world, "/rerank", query="q", documents=DOCUMENTS)
    assert answer.headers["x-ratelimit-remaining-tokens"] == "991"
    assert (await post(world, "/score", text_1="q", text_2="d")).headers["x-ratelimit-remaining-tokens"] == "982"
    assert [(one.model, one.prompt_tokens) for one in world.log.records] == [(EMBEDDING_MODEL, 9)] * 2


async def test_chat_model_ranks_nothing(world):
    refused = (await post(world, "/rerank", model=MODEL, query="q", documents=DOCUMENTS)).json()["error"]
    assert (refused["param"], refused["code"]) == ("model", "unsupported_value")
    assert "does not support the operation 'rerank'" in refused["message"]


async def test_key_sees_its_own_models_only(world):
    world.principal(SECRET, models=["other/*"])
    refused = await post(world, "/rerank", query="q", documents=DOCUMENTS)
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/rerank", {"query": "q", "documents": DOCUMENTS}), ("/v1/score", {"text_1": "q", "text_2": DOCUMENTS})],
)
async def test_lines_of_batches_are_scored_and_counted(world, batching, path, body):
    client = world.client()
    line = {"custom_id": "one", "method": "POST", "url": path, "body": {"model": EMBEDDING_MODEL, **body}}
    batch = await finish(client, await submit(client, jsonl(line), path))
    output = orjson.loads((await client.files.content(batch.output_file_id)).content)
    assert output["response"]["body"]["usage"]["total_tokens"] == batch.usage.total_tokens == 9
