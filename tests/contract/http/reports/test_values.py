"""Public reports about values in bodies: strange numbers, stop strings, deep JSON, vectors."""

import base64
import struct

import orjson
import pytest

from tests.contract.http.answers import EMBEDDING_MODEL, MODEL

HI = [{"role": "user", "content": "Hi"}]
JSON = {"content-type": "application/json"}


async def post(world, path, content):
    async with world.http() as http:
        return await http.post(path, content=content, headers=JSON)


def chat(text: str) -> bytes:
    """Return a body of a chat with more fields, given as JSON text."""
    return b'{"model":"%s","messages":[{"role":"user","content":"Hi"}],%s}' % (MODEL.encode(), text.encode())


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400"])
async def test_a_temperature_that_is_no_number_is_refused(world, value):
    """sgl-project/sglang#28153."""
    assert (await post(world, "/v1/chat/completions", chat(f'"temperature":{value}'))).status_code == 400


@pytest.mark.parametrize("value", ["-0.0", "1e-320", "0", "2"])
async def test_a_temperature_that_is_a_strange_number_is_taken(world, value):
    """sgl-project/sglang#28153."""
    assert (await post(world, "/v1/chat/completions", chat(f'"temperature":{value}'))).status_code == 200


@pytest.mark.parametrize(("stop", "status"), [('""', 400), ('[""]', 400), ("[]", 200), ("null", 200), ('"x"', 200)])
async def test_an_empty_stop_string_is_refused_and_none_is_not(world, stop, status):
    """mlc-ai/mlc-llm#2070, EuroEval/EuroEval#560."""
    assert (await post(world, "/v1/chat/completions", chat(f'"stop":{stop}'))).status_code == status


@pytest.mark.parametrize("depth", [3_000, 100_000])
@pytest.mark.parametrize("field", ["metadata", "unknown", "tools", "response_format"])
async def test_deep_json_is_refused(world, field, depth):
    """ggml-org/llama.cpp#27434, raullenchai/Rapid-MLX#798, antirez/ds4#43."""
    answer = await post(world, "/v1/chat/completions", chat(f'"{field}":' + "[" * depth + "]" * depth))
    assert answer.status_code == 400
    assert not world.chat.requests


async def test_a_refusal_of_a_stream_has_its_status(world):
    """ggml-org/llama.cpp#14566."""
    for path, body in (
        ("/v1/chat/completions", {"model": "none", "messages": HI}),
        ("/v1/responses", {"model": "none", "input": "Hi"}),
    ):
        answer = await post(world, path, orjson.dumps({**body, "stream": True}))
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")


@pytest.mark.parametrize("given", [["a", "b"], [[1, 2], [3]], "a", [1, 2]])
async def test_vectors_in_base64_are_the_same_numbers(world, given):
    """theroyallab/tabbyAPI#268, runpod-workers/worker-infinity-embedding#30."""
    bodies = [{"model": EMBEDDING_MODEL, "input": given, "encoding_format": kind} for kind in ("float", "base64")]
    numbers, packed = [(await post(world, "/v1/embeddings", orjson.dumps(body))).json()["data"] for body in bodies]
    for one, other in zip(numbers, packed, strict=True):
        content = base64.b64decode(other["embedding"])
        assert struct.unpack(f"<{len(content) // 4}f", content) == pytest.approx(one["embedding"])


@pytest.mark.parametrize("given", ["", [], [""], [[]], [None], None])
async def test_an_empty_text_is_not_embedded(world, given):
    """plastic-labs/honcho#932."""
    body = {"model": EMBEDDING_MODEL, "input": given}
    assert (await post(world, "/v1/embeddings", orjson.dumps(body))).status_code == 400


@pytest.mark.parametrize("options", [{}, {"n": 2}, {"stream_options": {"include_usage": True}}])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_the_chunk_with_the_usage_has_no_choices_and_others_no_usage(world, path, options):
    """BerriAI/litellm#28735, ROCm/ATOM#1711, ogx-ai/ogx#6541."""
    prompt = {"messages": HI} if "chat" in path else {"prompt": "Hi"}
    body = {"model": MODEL, "stream": True, "stream_options": {"include_usage": True}, **prompt, **options}
    answer = await post(world, path, orjson.dumps(body))
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    *chunks, last = map(orjson.loads, lines)
    assert all(chunk["usage"] is None and len(chunk["choices"]) == 1 for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] > 0


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/input_tokens"])
async def test_an_empty_input_is_refused_in_the_words_of_responses(world, path):
    answer = await post(world, path, orjson.dumps({"model": MODEL, "input": []}))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == ("input", "empty_array")
    assert "'input'" in error["message"]
    assert "messages" not in error["message"]
