"""The bodies of rerank and score: the names that Jina, Cohere and vLLM have, and what fits together."""

import orjson
import pytest

from serve_app.errors.api import BadRequest
from serve_app.schemas.scoring import RerankRequest, ScoreRequest
from serve_app.validation.body import parse_json_body

RERANK = {"model": "m", "query": "q", "documents": ["a", "b"]}
SCORE = {"model": "m", "queries": "q", "documents": ["a", "b"]}


def parsed(body, schema):
    return parse_json_body(orjson.dumps(body), schema)


def engine_body(body, schema):
    raw = orjson.dumps(body)
    return orjson.loads(parse_json_body(raw, schema).to_engine_body(raw))


def test_texts_may_be_objects():
    body = {**RERANK, "query": {"text": "q"}, "documents": [{"text": "a"}, "b"]}
    assert engine_body(body, RerankRequest) == engine_body(RERANK, RerankRequest)
    assert engine_body(RERANK, RerankRequest) == {
        "queries": ["q"],
        "documents": ["a", "b"],
        "top_n": 2,
        "return_documents": True,
    }


@pytest.mark.parametrize("top_n", [None, 0, 1, 7])
def test_top_n_is_all_unless_it_says_how_many(top_n):
    assert engine_body({**RERANK, "top_n": top_n}, RerankRequest)["top_n"] == (top_n or 2)


@pytest.mark.parametrize(
    "names", [("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2")]
)
def test_score_knows_four_pairs_of_names(names):
    left, right = names
    assert engine_body({"model": "m", left: "q", right: ["a", {"text": "b"}]}, ScoreRequest) == {
        "queries": ["q"],
        "documents": ["a", "b"],
    }
    assert engine_body({"model": "m", left: ["q", "r"], right: ["a", "b"]}, ScoreRequest)["queries"] == ["q", "r"]


def test_options_reach_the_engine():
    options = {
        "instruction": "Find what answers the question.",
        "max_tokens_per_doc": 5,
        "max_tokens_per_query": 0,
        "truncate_prompt_tokens": -1,
        "use_activation": False,
    }
    assert engine_body({**SCORE, **options, "user": "u"}, ScoreRequest).items() >= options.items()


@pytest.mark.parametrize(
    ("body", "schema", "param", "code"),
    [
        ({"query": ""}, RerankRequest, "query", "empty_string"),
        ({"query": {"text": ""}}, RerankRequest, "query", "empty_string"),
        ({"query": ["q"]}, RerankRequest, "query", "invalid_type"),
        ({"query": None}, RerankRequest, "query", "invalid_type"),
        ({"documents": []}, RerankRequest, "documents", "empty_array"),
        ({"documents": "a"}, RerankRequest, "documents", "invalid_type"),
        ({"documents": ["a", 1]}, RerankRequest, "documents[1]", "invalid_type"),
        ({"documents": [{"title": "a"}]}, RerankRequest, "documents[0].text", "missing_required_parameter"),
        ({"documents": ["a"] * 2049}, RerankRequest, "documents", "array_above_max_length"),
        ({"top_n": -1}, RerankRequest, "top_n", "integer_below_min_value"),
        ({"rank_fields": ["title"]}, RerankRequest, "rank_fields", "unsupported_parameter"),
        ({"truncate_prompt_tokens": 0}, RerankRequest, "truncate_prompt_tokens", "integer_below_min_value"),
        ({"max_tokens_per_doc": 2**31}, RerankRequest, "max_tokens_per_doc", "integer_above_max_value"),
        ({"instruction": "x" * 8193}, RerankRequest, "instruction", "string_above_max_length"),
        ({"temperature": 1}, RerankRequest, "temperature", "unknown_parameter"),
        ({"queries": ["q", "r", "s"]}, ScoreRequest, "queries", "invalid_value"),
        ({"queries": []}, ScoreRequest, "queries", "empty_array"),
        ({"queries": None}, ScoreRequest, "queries", "missing_required_parameter"),
        ({"text_1": "q", "text_2": "a"}, ScoreRequest, "queries", "invalid_parameter_combination"),
        ({"documents": [["a"]]}, ScoreRequest, "documents[0]", "invalid_type"),
    ],
)
def test_what_is_wrong_is_named(body, schema, param, code):
    with pytest.raises(BadRequest) as refused:
        parsed({**(RERANK if schema is RerankRequest else SCORE), **body}, schema)
    assert (refused.value.param, refused.value.code) == (param, code)
