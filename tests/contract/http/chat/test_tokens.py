"""Tokenize and detokenize over HTTP: what the engine is asked, what it costs, and what is refused."""

from dataclasses import replace

import orjson
import pytest

from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, SECRET
from tests.contract.http.batch_calls import finish, jsonl, submit

MESSAGES = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


async def post(world, path, **body):
    async with world.http() as http:
        return await http.post(path, json={"model": MODEL, **body})


@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_text_becomes_tokens_and_text_again(world, prefix):
    answer = (await post(world, f"{prefix}/tokenize", prompt="Hi", return_token_strs=True)).json()
    assert answer == {"count": 2, "max_model_len": 4096, "tokens": [72, 105], "token_strs": ["H", "i"]}
    assert (await post(world, f"{prefix}/detokenize", tokens=answer["tokens"])).json() == {"prompt": "Hi"}
    assert [record.route for record in world.log.records] == [f"{prefix}/tokenize", f"{prefix}/detokenize"]


async def test_chat_is_tokenized_with_its_tools(world):
    answer = await post(world, "/tokenize", messages=MESSAGES, tools=[TOOL], add_generation_prompt=False)
    assert answer.json()["count"] == 2
    assert orjson.loads(world.chat.requests[0].body)["tools"] == [TOOL]
    assert world.chat.requests[0].operation == "tokenize"


async def test_openai_client_posts_it(world):
    answer = await world.client().post("/tokenize", cast_to=object, body={"model": "chat", "prompt": "Hi"})
    assert answer["tokens"] == [72, 105]
    assert world.log.records[0].model == MODEL


async def test_it_takes_a_request_and_no_tokens(world):
    world.principal(SECRET, requests_per_minute=2, tokens_per_minute=10)
    first = await post(world, "/tokenize", prompt="x" * 10_000)
    assert first.status_code == 200
    assert first.headers["x-ratelimit-remaining-tokens"] == "10"
    assert (await post(world, "/detokenize", tokens=[1] * 10_000)).status_code == 200
    refused = await post(world, "/tokenize", prompt="x")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert not any(record.prompt_tokens or record.completion_tokens for record in world.log.records)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {"prompt": "x" * (16 * 4096 * 4 + 4)}, "prompt"),
        ("/tokenize", {"messages": [{"role": "user", "content": "x" * (16 * 4096 * 4 + 4)}]}, "messages"),
        ("/detokenize", {"tokens": [1] * (16 * 4096 + 1)}, "tokens"),
    ],
)
async def test_what_would_keep_others_waiting_is_refused(world, path, body, param):
    refused = await post(world, path, **body)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], error["code"]) == (400, param, "context_length_exceeded")
    assert not world.chat.requests


async def test_models_that_cannot_do_it_say_so(world):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    refused = await post(world, "/tokenize", messages=[{"role": "user", "content": [image]}])
    assert "image_url is not supported" in refused.json()["error"]["message"]
    world.chat.card = replace(world.chat.card, has_tools=False)
    refused = await post(world, "/tokenize", messages=MESSAGES, tools=[TOOL])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools")
    assert (await post(world, "/tokenize", model=EMBEDDING_MODEL, prompt="x")).status_code == 200
    assert (await post(world, "/tokenize", model="none", prompt="x")).status_code == 404


async def test_key_sees_its_own_models_only(world):
    world.principal(SECRET, models=["other/*"])
    assert (await post(world, "/tokenize", prompt="x")).json()["error"]["code"] == "model_not_found"


async def test_key_is_needed(world):
    async with world.http(authorization="") as http:
        assert (await http.post("/tokenize", json={"model": MODEL, "prompt": "x"})).status_code == 401


async def test_lines_of_batches_tokenize(world, batching):
    client, path = world.client(), "/v1/tokenize"
    line = {"custom_id": "one", "method": "POST", "url": path, "body": {"model": MODEL, "messages": MESSAGES}}
    batch = await finish(client, await submit(client, jsonl(line), path))
    output = await client.files.content(batch.output_file_id)
    assert orjson.loads(output.content)["response"]["body"]["count"] == 2
    assert batch.usage.total_tokens == 0
