"""vLLM's own options of embeddings through the real engine: what each of them changes in the vectors."""

import base64
import json

import numpy as np
import pytest

from deployments.models.contract.errors import RequestRejected
from tests.contract.engine.replies import Collected

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

TEXT = "A cat sleeps on the warm window sill."


@pytest.fixture(scope="module")
def embed(embedder):
    """What asks an engine for embeddings, and returns the answer."""
    from deployments.replica.embeddings import EmbeddingRunner

    runner = EmbeddingRunner(embedder.state.serving_embedding, embedder.model)

    def embed(**fields):
        reply = Collected()
        body = json.dumps({"input": TEXT, "encoding_format": "float", **fields}).encode()
        embedder.run(runner.run({"cache_salt": "a", "priority": 0}, body, reply))
        return json.loads(reply.pieces[0])

    return embed


def vector(answer) -> np.ndarray:
    return np.array(answer["data"][0]["embedding"])


def test_a_prompt_is_truncated_from_the_side_that_is_named(embed):
    whole = embed()
    left, right = (embed(truncate_prompt_tokens=5, truncation_side=side) for side in ("left", "right"))
    assert left["usage"]["prompt_tokens"] == right["usage"]["prompt_tokens"] == 5 < whole["usage"]["prompt_tokens"]
    assert vector(left) @ vector(right) < 0.99


def test_more_tokens_than_the_model_takes_are_refused_by_name(embed):
    with pytest.raises(RequestRejected) as caught:
        embed(truncate_prompt_tokens=100_000)
    assert caught.value.param == "truncate_prompt_tokens"


def test_special_tokens_are_left_out(embed):
    assert embed(add_special_tokens=False)["usage"]["prompt_tokens"] == embed()["usage"]["prompt_tokens"] - 2


def test_vectors_have_a_length_of_one_unless_that_is_off(embed):
    assert np.linalg.norm(vector(embed())) == pytest.approx(1, abs=1e-4)
    raw = vector(embed(use_activation=False))
    assert np.linalg.norm(raw) != pytest.approx(1, abs=1e-2)
    assert raw / np.linalg.norm(raw) == pytest.approx(vector(embed()), abs=1e-4)


@pytest.mark.parametrize(("name", "dtype"), [("float32", "<f4"), ("float16", "<f2")])
def test_the_bytes_of_vectors_have_the_form_that_is_asked_for(embed, name, dtype):
    packed = embed(encoding_format="base64", embed_dtype=name)["data"][0]["embedding"]
    assert np.frombuffer(base64.b64decode(packed), dtype) == pytest.approx(vector(embed()), abs=1e-3)
    big = embed(encoding_format="base64", embed_dtype=name, endianness="big")["data"][0]["embedding"]
    assert np.frombuffer(base64.b64decode(big), dtype.replace("<", ">")) == pytest.approx(vector(embed()), abs=1e-3)


@pytest.mark.parametrize(("name", "size"), [("bfloat16", 2), ("fp8_e4m3", 1), ("fp8_e5m2", 1)])
def test_numbers_of_vectors_take_fewer_bytes(embed, name, size):
    packed = embed(encoding_format="base64", embed_dtype=name)["data"][0]["embedding"]
    assert len(base64.b64decode(packed)) == 384 * size


def test_floats_have_no_form_of_bytes(embed):
    assert vector(embed(embed_dtype="fp8_e4m3", endianness="big")) == pytest.approx(vector(embed()), abs=1e-6)
