"""Embeddings from a real model: their shapes, and that they mean something."""

import base64
import struct

import httpx2
import numpy as np
import pytest
from openai import BadRequestError, OpenAI

from tests.service import CHAT, EMBED

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

SENTENCES = [
    "A cat sleeps on the warm window sill.",
    "The kitten is napping by the window.",
    "Central banks raised interest rates again.",
]


def test_vectors_of_like_sentences_are_alike(client: OpenAI) -> None:
    answer = client.embeddings.create(model=EMBED, input=SENTENCES)
    assert [item.index for item in answer.data] == [0, 1, 2]
    cat, kitten, banks = (np.array(item.embedding) for item in answer.data)
    assert all(len(vector) == 384 for vector in (cat, kitten, banks))
    assert np.linalg.norm(cat) == pytest.approx(1, abs=1e-3)
    assert cat @ kitten > 0.6
    assert cat @ banks < 0.2
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 20


def test_floats_and_base64_are_the_same_vector(http: httpx2.Client) -> None:
    def ask(**fields: str) -> object:
        answer = http.post("/v1/embeddings", json={"model": EMBED, "input": SENTENCES[0], **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()["data"][0]["embedding"]

    floats, default, packed = ask(encoding_format="float"), ask(), ask(encoding_format="base64")
    assert isinstance(packed, str)
    raw = base64.b64decode(packed)
    assert struct.unpack(f"<{len(raw) // 4}f", raw) == pytest.approx(floats, abs=1e-6)
    assert default == floats


def test_tokens_are_taken_in_place_of_text(client: OpenAI) -> None:
    one = client.embeddings.create(model=EMBED, input=[101, 4937, 102])
    two = client.embeddings.create(model=EMBED, input=[[101, 4937, 102], [101, 3899, 102]])
    assert len(one.data) == 1
    assert len(two.data) == 2
    assert two.usage.prompt_tokens == 6
    assert two.data[0].embedding == pytest.approx(one.data[0].embedding, abs=1e-4)


def test_input_that_is_too_long_is_cut(client: OpenAI) -> None:
    long = client.embeddings.create(model=EMBED, input="cat window " * 4000)
    longer = client.embeddings.create(model=EMBED, input="cat window " * 4000 + "banks rates")
    assert long.usage.prompt_tokens == 256
    assert longer.data[0].embedding == pytest.approx(long.data[0].embedding, abs=1e-4)
    tokens = client.embeddings.create(model=EMBED, input=[4937] * 1000)
    assert tokens.usage.prompt_tokens == 256


def test_dimensions_that_the_model_cannot_make_are_refused(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.embeddings.create(model=EMBED, input="cat", dimensions=64)
    assert refused.value.param == "dimensions"


def test_models_of_another_kind_and_empty_input_are_refused(client: OpenAI) -> None:
    with pytest.raises(BadRequestError):
        client.embeddings.create(model=CHAT, input="cat")
    with pytest.raises(BadRequestError):
        client.embeddings.create(model=EMBED, input="")
