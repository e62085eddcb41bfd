"""Bodies made to hurt: always a quick 4xx in OpenAI's shape, and the service goes on."""

import time

import orjson
import pytest

from tests.contract.http.answers import EMBEDDING_MODEL, MODEL

MESSAGES = [{"role": "user", "content": "Say hello."}]


def chat(**more):
    return orjson.dumps({"model": MODEL, "messages": MESSAGES, **more})


def raw(text):
    return text.encode()


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def image(url):
    return orjson.dumps(
        {"model": MODEL, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}
    )


HOSTILE = {
    "deep arrays": raw('{"model":' + "[" * 10_000 + "]" * 10_000 + "}"),
    "deep objects": raw('{"a":' * 10_000 + "1" + "}" * 10_000),
    "unclosed": raw("[" * 100_000),
    "many keys": orjson.dumps({f"k{n}": n for n in range(50_000)}),
    "n of a billion": chat(n=1_000_000_000),
    "n of a huge integer": raw(
        '{"model":"demo/chat","messages":[{"role":"user","content":"x"}],"n":' + "9" * 4000 + "}"
    ),
    "many stops": chat(stop=["x"] * 100_000),
    "long stop": chat(stop="x" * 10_000_000),
    "huge logit_bias": chat(logit_bias={str(n): 1 for n in range(100_000)}),
    "many tools": chat(tools=[{"type": "function", "function": {"name": "f"}}] * 5000),
    "cache_salt": chat(cache_salt="x" * 1025),
    "millions of tokens": chat(stop_token_ids=[1] * 1_000_000, allowed_token_ids=[1] * 1_000_000),
    "hundreds of thousands of bad words": chat(bad_words=["x"] * 400_000),
    "deep arguments of a template": chat(chat_template_kwargs={"a": [[[["x" * 20_000]]]]}),
    "priority": chat(priority=-1),
    "chat_template": chat(chat_template="{{ 1 }}"),
    "routing field": chat(data_parallel_rank=1),
    "kv transfer": chat(kv_transfer_params={"x": 1}),
    "structured regex": chat(structured_outputs={"regex": "((a{1,100}){1,100}){1,100}"}),
    "guided grammar": chat(guided_grammar='root ::= "' + "a" * 20_000 + '"'),
    "guided choice": chat(guided_choice=["x" * 100] * 100_000),
    "wide enum": chat(response_format=schema_format({"enum": [f"{n}" * 400 for n in range(2000)]})),
    "min items bomb": chat(
        response_format=schema_format(
            {"type": "array", "minItems": 1_000_000, "items": {"type": "array", "minItems": 1_000_000}}
        )
    ),
    "metadata address": image("http://169.254.169.254/latest/meta-data"),
    "loopback": image("http://127.0.0.1:8000/v1/models"),
    "file": image("file:///etc/passwd"),
    "nan": raw('{"model":"demo/chat","temperature":NaN}'),
    "lone surrogate": raw('{"model":"\\ud800","messages":[]}'),
    "bytes": b"\x00\x01\x02" * 1000,
    "too many inputs": orjson.dumps({"model": EMBEDDING_MODEL, "input": ["a"] * 5000}),
    "empty input": orjson.dumps({"model": EMBEDDING_MODEL, "input": [""]}),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_body_is_refused_quickly(world, name):
    path = "/v1/embeddings" if "input" in name else "/v1/chat/completions"
    async with world.http() as http:
        cpu_s = 1e9
        for _ in range(3):  # The least of three, since a garbage collection may fall into any of them.
            started = time.process_time()
            answer = await http.post(path, content=HOSTILE[name])
            cpu_s = min(cpu_s, time.process_time() - started)
        assert 400 <= answer.status_code < 500, answer.text[:200]
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert len(answer.content) < 2000
        assert cpu_s < 0.1, f"{cpu_s:.3f} s of CPU"
        assert not world.chat.requests
        well = await http.post("/v1/chat/completions", content=chat())
        assert well.status_code == 200
