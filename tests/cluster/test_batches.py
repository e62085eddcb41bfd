"""Batches over vLLM's engines: their lines are answered as requests are."""

import pytest
from openai import OpenAI

from tests.serve.batch_calls import finish, line, output_of, submit
from tests.service import CANARY, CHAT, EMBED, TRAINED

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


def test_models_mix_and_failures_stand_in_their_place(client: OpenAI) -> None:
    batch = finish(client, submit(client, [line(0), line(1, TRAINED), line(2, "none"), line(3, temperature=9)]))
    assert batch.status == "completed"
    assert [one["response"]["status_code"] for one in output_of(client, batch)] == [200, 200, 404, 400]
    assert batch.error_file_id is not None


def test_a_line_s_vector_is_the_one_that_a_request_gets(client: OpenAI) -> None:
    embed = {"custom_id": "e", "method": "POST", "url": "/v1/embeddings", "body": {"model": EMBED, "input": "cat"}}
    (one,) = output_of(client, finish(client, submit(client, [embed], "/v1/embeddings")))
    there = client.embeddings.create(model=EMBED, input="cat", encoding_format="float").data[0].embedding
    here = one["response"]["body"]["data"][0]["embedding"]
    assert len(here) == 384
    assert max(abs(one - other) for one, other in zip(here, there, strict=True)) < 1e-4


def test_lines_may_ask_for_responses(client: OpenAI) -> None:
    body = {"model": CHAT, "input": f"{CANARY} asks.", "max_output_tokens": 16}
    lines = [
        {"custom_id": f"r-{number}", "method": "POST", "url": "/v1/responses", "body": body} for number in range(3)
    ]
    batch = finish(client, submit(client, lines, "/v1/responses"))
    assert batch.status == "completed"
    output = output_of(client, batch)
    assert [one["response"]["status_code"] for one in output] == [200, 200, 200]
    assert {one["response"]["body"]["object"] for one in output} == {"response"}
