"""Every number in a request has bounds: it is taken at them, and refused by name past them, however far."""

import json
from collections.abc import Iterator

import pytest

from serve_app.errors.api import BadRequest
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.completions import CompletionRequest
from serve_app.schemas.embeddings import EmbeddingRequest
from serve_app.schemas.responses.request import ResponseRequest
from serve_app.schemas.scoring import RerankRequest, ScoreRequest
from serve_app.validation.body import parse_json_body

REQUESTS = {
    ChatRequest: {"messages": [{"role": "user", "content": "hi"}], "logprobs": True},
    CompletionRequest: {"prompt": "hi", "max_tokens": 2**31 - 1, "logprobs": 1},
    EmbeddingRequest: {"input": "hi"},
    ResponseRequest: {"input": "hi", "include": ["message.output_text.logprobs"]},
    RerankRequest: {"query": "hi", "documents": ["hi"]},
    ScoreRequest: {"text_1": "hi", "text_2": "hi"},
}


def numbers() -> Iterator[tuple[type, str, float | None, float | None, str]]:
    """Yield each number of a request as its schema describes it: the least, the most, and integer or number."""
    for schema in REQUESTS:
        for name, described in schema.model_json_schema()["properties"].items():
            for kind in described.get("anyOf", [described]):
                if kind.get("type") in ("integer", "number"):
                    yield schema, name, kind.get("minimum"), kind.get("maximum"), kind["type"]


def refusal_of(schema, name, number, **more):
    """Return the refusal of a request with a number, which is JSON's text; None if the request is accepted."""
    body = {"model": "m", **REQUESTS[schema], **more}
    body.pop(name, None)
    try:
        parse_json_body(f'{json.dumps(body)[:-1]}, "{name}": {number}}}'.encode(), schema)
    except BadRequest as refused:
        return refused
    return None


NUMBERS = pytest.mark.parametrize(
    ("schema", "name", "least", "most", "kind"),
    [pytest.param(*number, id=f"{number[0].__name__}-{number[1]}") for number in numbers()],
)


def test_the_numbers_of_requests_are_found():
    assert len({name for _, name, *_ in numbers()}) > 20


@NUMBERS
def test_a_number_is_taken_at_its_bounds_and_refused_by_name_past_them(schema, name, least, most, kind):
    for bound in (least, most):
        beside = {"best_of": {"n": bound}, "max_tokens": {"echo": True}}  # No tokens: nothing but the prompt.
        assert refusal_of(schema, name, bound, **beside.get(name, {})) is None, bound
    step = 1 if kind == "integer" else 0.001
    for past, code in (
        (least - step, "below_min_value"),
        (-(10**30), "below_min_value"),
        (most + step, "above_max_value"),
        (10**30, "above_max_value"),
    ):
        error = refusal_of(schema, name, past)
        assert (error.param, error.code.partition("_")[2]) == (name, code), past


@NUMBERS
def test_what_is_no_number_is_refused(schema, name, least, most, kind):
    for text in ('"1"', "true", "[1]", "{}"):
        error = refusal_of(schema, name, text)
        assert (error.param, error.code) == (name, "invalid_type"), text
    for text in ("1e400", "-1e400", "NaN", "Infinity", "1" + 400 * "0"):  # No JSON, or more than a float can hold.
        error = refusal_of(schema, name, text)
        assert (error.status, error.param) == (400, None), text
        assert "JSON" in error.message
