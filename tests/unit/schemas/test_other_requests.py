"""The bodies of completions and embeddings, and models on the wire."""

import inspect
import json

import pytest
from openai.types import completion_create_params, embedding_create_params
from pydantic import ValidationError

from deployments.models.contract.engine import ModelCard
from serve_app.routes.models import models_to_wire
from serve_app.schemas.completions import CompletionRequest
from serve_app.schemas.embeddings import EmbeddingRequest
from serve_app.validation.body import parse_json_body


def completion(**fields):
    return CompletionRequest.model_validate({"model": "m", "prompt": "hi", **fields})


def embedding(value, **fields):
    return EmbeddingRequest.model_validate({"model": "m", "input": value, **fields})


def accepts(build, *args, **fields):
    try:
        build(*args, **fields)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("prompt", ["", "a", ["a", ""], [1, 2], [[1], [2]], ["a"] * 128],
         [None, [], [[]], [1.5], ["a", 1], {}, ["a"] * 129]),
        ("n", [1, 128, None], [0, 129]),
        ("best_of", [1, None], [2, 0]),
        ("echo", [True, False, None], ["x"]),
        ("logprobs", [0, 5, None], [-1, 6, True]),
        ("max_tokens", [1, None], [0, -1]),
        ("suffix", ["", None, "x"], [1, ["x"]]),
        ("stop", ["a", ["a"] * 4], [["a"] * 5]),
        ("temperature", [0, 2], [2.1]),
        ("stream_options", [None], [{}]),
        ("cache_salt", ["x", None], ["", "x" * 1025]),
    ],
)  # fmt: skip
def test_bounds_of_a_completion_field(name, inside, outside):
    assert [value for value in inside if not accepts(completion, **{name: value})] == []
    assert [value for value in outside if accepts(completion, **{name: value})] == []


def test_completion_rules_between_fields():
    assert accepts(completion, n=3, best_of=3)
    assert accepts(completion, echo=True, max_tokens=0)
    assert accepts(completion, prompt=["a"] * 64, n=2)
    assert not accepts(completion, prompt=["a"] * 65, n=2)
    assert accepts(completion, stream=True, stream_options={"include_usage": True})


@pytest.mark.parametrize(
    ("params", "model"), [(completion_create_params, CompletionRequest), (embedding_create_params, EmbeddingRequest)]
)
def test_every_field_that_the_openai_client_sends_is_known(params, model):
    fields = set()
    for name, kind in inspect.getmembers(params, inspect.isclass):
        if "CreateParams" in name:
            fields |= set(kind.__annotations__)
    assert "model" in fields
    assert fields <= set(model.model_fields)


@pytest.mark.parametrize(
    ("prompt", "num_choices", "tokens", "prefix", "texts"),
    [
        ("hello", 2, 2, "hello", ["hello"]),
        (["hello", "you"], 4, 3, "hello", ["hello", "you"]),
        ([5, 6, 7], 2, 3, "[5, 6, 7]", []),
        ([[5], [6, 7]], 4, 3, "[5]", []),
        ("x" * 5_000, 2, 1251, "x" * 1_024, ["x" * 5_000]),
    ],
)
def test_completion_tells_its_size(prompt, num_choices, tokens, prefix, texts):
    body = completion(prompt=prompt, n=2)
    assert body.num_choices == num_choices
    assert body.prompt_estimate_tokens() == tokens
    assert body.affinity_prefix() == prefix
    assert body.prompt_texts() == texts
    assert not body.is_stream


def test_a_suffix_is_text_that_counts_for_each_prompt():
    body = completion(prompt=["a", "b"], suffix="x" * 400)
    assert body.prompt_estimate_tokens() == completion(prompt=["a", "b"]).prompt_estimate_tokens() + 2 * 101
    assert body.prompt_texts() == ["a", "b", "x" * 400]
    for beside in ({"prompt": [1]}, {"prompt": [[1]]}, {"truncate_prompt_tokens": 4}, {"echo": True, "logprobs": 1}):
        assert not accepts(completion, suffix="x", **beside)
        assert accepts(completion, suffix="", **beside)
    assert accepts(completion, suffix="x", echo=True)


def test_completion_is_sixteen_tokens_long_by_default():
    assert completion().max_tokens_bound() == completion(max_tokens=None).max_tokens_bound() == 16
    assert completion(max_tokens=5).max_tokens_bound() == 5


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"temperature": 0, "max_tokens": 5}, None),
        ({"user": "u", "suffix": None, "best_of": 1, "stop": None}, {}),
        ({"suffix": ""}, {}),
        ({"suffix": "x"}, None),
        ({"suffix": "x", "user": "u"}, {"suffix": "x"}),
        ({"top_p": 0}, {"top_p": 1e-6}),
        ({"temperature": 0, "n": 2}, {"temperature": 0.01, "n": 2}),
        (
            {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": True}},
            {"stream": True, "stream_options": {"include_usage": True}},
        ),
    ],
)
def test_completion_is_rewritten_only_when_it_must_be(fields, expected):
    raw = json.dumps({"model": "m", "prompt": "hi", **fields}).encode()
    result = parse_json_body(raw, CompletionRequest).to_engine_body(raw)
    if expected is None:
        assert result is raw
    else:
        assert json.loads(result) == {"model": "m", "prompt": "hi", **expected}


@pytest.mark.parametrize(
    ("value", "tokens"),
    [("hello", 2), (["hello", "you"], 3), ([1, 2, 3], 3), ([[1], [2, 3]], 3), (["a"] * 2048, 2048), ("語" * 3, 3)],
)
def test_embedding_input_in_each_form_is_accepted_and_counted(value, tokens):
    assert embedding(value).prompt_estimate_tokens() == tokens


@pytest.mark.parametrize(
    "value", ["", [], [""], ["a", ""], [[]], [[1], []], 5, None, [None], ["a"] * 2049, [[1]] * 2049, [-1], [True]]
)
def test_embedding_input_out_of_bounds_is_refused(value):
    assert not accepts(embedding, value)


def test_embedding_options_are_bounded():
    assert embedding("a").encoding_format == "float"
    assert accepts(embedding, "a", encoding_format="base64", dimensions=1, user="u")
    assert not accepts(embedding, "a", encoding_format="hex")
    assert not accepts(embedding, "a", dimensions=0)
    assert not accepts(embedding, "a", truncate_prompt_tokens=0)
    assert accepts(embedding, "a" * 1_199_996)  # It is cut.
    assert not accepts(embedding, ["a" * 600_000] * 2)
    assert accepts(embedding, [[1] * 150_000, [1] * 150_000])
    assert not accepts(embedding, [[1] * 150_000, [1] * 150_001])


def test_engine_is_asked_to_truncate_embedding_input():
    raw = b'\n {"model": "m", "input": "a"}'
    assert json.loads(parse_json_body(raw, EmbeddingRequest).to_engine_body(raw)) == {
        "truncate_prompt_tokens": -1,
        "model": "m",
        "input": "a",
    }


def test_models_are_listed_as_openai_does():
    card = ModelCard("a/b", frozenset({"chat"}), 100, created=5, owned_by="a", has_tools=True, has_images=True)
    about = {"max_model_len": 100, "context_length": 100, "capabilities": ["tools", "images"]}
    assert models_to_wire([card]) == {
        "object": "list",
        "data": [{"id": "a/b", "object": "model", "created": 5, "owned_by": "a", **about}],
    }
