"""vLLM's own options: their bounds, what is refused and why, and what the engine gets of them."""

import json

import pytest

from serve_app.errors.api import BadRequest
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.completions import CompletionRequest
from serve_app.schemas.embeddings import EmbeddingRequest
from serve_app.schemas.engine_options import MAX_ALLOWED_TOKENS, MAX_BAD_WORDS, MAX_STOP_TOKENS
from serve_app.schemas.refused_options import REFUSED_IN_CHAT, REFUSED_IN_COMPLETIONS, REFUSED_IN_EMBEDDINGS
from serve_app.validation.body import parse_json_body

LEAST = {
    ChatRequest: {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    CompletionRequest: {"model": "m", "prompt": "hi"},
    EmbeddingRequest: {"model": "m", "input": "hi"},
}
REFUSED = {
    ChatRequest: REFUSED_IN_CHAT,
    CompletionRequest: REFUSED_IN_COMPLETIONS,
    EmbeddingRequest: REFUSED_IN_EMBEDDINGS,
}
A_MILLION = 1_000_000


def error_of(schema, **fields):
    """Return the refusal of a body with these fields, None if it is accepted."""
    try:
        parse_json_body(json.dumps({**LEAST[schema], **fields}).encode(), schema)
    except BadRequest as refused:
        return refused
    return None


def engine_body(schema, **fields):
    raw = json.dumps({**LEAST[schema], **fields}).encode()
    return json.loads(parse_json_body(raw, schema).to_engine_body(raw))


BOUNDS = [
    ("top_k", [-1, 0, 1, 2**31 - 1, None], [-2, 2**31, 1.5, True, "1"]),
    ("min_p", [0, 0.5, 1, None], [-0.1, 1.1, "1"]),
    ("repetition_penalty", [0.01, 1, 100, None], [0, -1, 1e-9, 101, "1"]),
    ("min_tokens", [0, 16, None], [-1, 17, 2**31, 1.5]),
    ("ignore_eos", [True, False, None], [1, "true"]),
    ("stop_token_ids", [[], [0], [5] * MAX_STOP_TOKENS, None], [[-1], [2**31], ["5"], 5, [1] * (MAX_STOP_TOKENS + 1)]),
    ("include_stop_str_in_output", [True, None], [1]),
    ("bad_words", [[], ["a"], ["a"] * MAX_BAD_WORDS, None], [[""], ["a" * 129], [1], "a", ["a"] * (MAX_BAD_WORDS + 1)]),
    ("allowed_token_ids", [[0], [5] * MAX_ALLOWED_TOKENS, None], [[], [-1], [1.5], [1] * (MAX_ALLOWED_TOKENS + 1)]),
    ("logprob_token_ids", [[], None], [[1] * 129, [-1], ["a"]]),
    ("skip_special_tokens", [True, None], ["x"]),
    ("spaces_between_special_tokens", [False, None], ["x"]),
    ("repetition_detection", [{"max_pattern_size": 32, "min_count": 32}, {}, None],
     [{"max_pattern_size": 33, "min_count": 2}, {"max_pattern_size": 4, "min_count": 33}, {"max_pattern_size": 4},
      {"max_pattern_size": 2, "min_pattern_size": 3, "min_count": 2}, {"min_count": -1}, {"x": 1}, 3]),
    ("truncate_prompt_tokens", [-1, 1, 2**31 - 1, None], [-2, 0, 2**31, 1.5]),
    ("truncation_side", ["left", "right", None], ["middle"]),
    ("add_special_tokens", [True, None], ["x"]),
    ("thinking_token_budget", [-1, 0, 5, None], [-2, 1.5]),
    ("prompt_logprobs", [0, 20, None], [-1, 21, True]),
    ("return_token_ids", [True, None], ["x"]),
    ("return_tokens_as_token_ids", [True, None], ["x"]),
    ("stream_interval", [1, 1024, None], [0, 1025]),
    ("priority", [0, 1000, None], [-1, 1001, -(2**63), 0.5]),
    ("cache_salt", ["x", "x" * 1024, None], ["", "x" * 1025, 5]),
    ("session_id", ["", "x" * 1024, None], ["x" * 1025]),
]  # fmt: skip


@pytest.mark.parametrize("schema", [ChatRequest, CompletionRequest])
@pytest.mark.parametrize(("name", "inside", "outside"), BOUNDS, ids=[name for name, *_ in BOUNDS])
def test_an_option_is_taken_within_its_bounds_and_refused_by_name_past_them(schema, name, inside, outside):
    for value in inside:
        assert error_of(schema, max_tokens=16, **{name: value}) is None, value
    for value in outside:
        error = error_of(schema, max_tokens=16, **{name: value})
        assert error is not None, value
        assert error.param.startswith(name)


CHAT_BOUNDS = [
    ("documents", [[], [{"title": "a", "text": "b"}], None], [[{"a": 1}], ["a"], [{"text": "a"}] * 257]),
    ("chat_template_kwargs", [{}, {"enable_thinking": True, "more": {"a": [1]}}, None],
     [{"a": "x" * 20_000}, {f"a{i}": 1 for i in range(65)}, {"chat_template": "x"}, {"tools": []}, {"messages": []},
      {"tokenize": True}, {"max_length": 5}, []]),
    ("include_reasoning", [True, False, None], [1]),
    ("echo", [True, None], [1]),
    ("add_generation_prompt", [True, False, None], [1]),
    ("return_prompt_text", [True, None], [1]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inside", "outside"), CHAT_BOUNDS, ids=[name for name, *_ in CHAT_BOUNDS])
def test_an_option_of_chats_is_bounded(name, inside, outside):
    for value in inside:
        assert error_of(ChatRequest, **{name: value}) is None, value
    for value in outside:
        assert error_of(ChatRequest, **{name: value}).param.startswith(name), value


@pytest.mark.parametrize("name", ["stop_token_ids", "allowed_token_ids", "logprob_token_ids"])
def test_a_list_of_a_million_tokens_is_refused_for_its_length(name):
    error = error_of(ChatRequest, logprobs=True, **{name: [1] * A_MILLION})
    assert (error.param, error.code) == (name, "array_above_max_length")


def test_a_list_of_a_million_words_is_refused():
    assert error_of(ChatRequest, bad_words=["a"] * 400_000).code == "array_above_max_length"


@pytest.mark.parametrize(("schema", "name"), [(schema, name) for schema in REFUSED for name in REFUSED[schema]])
def test_what_harms_others_is_refused_with_the_reason_unless_it_changes_nothing(schema, name):
    harmless, reason = REFUSED[schema][name]
    for value in ({"a": 1}, "x", 7):
        error = error_of(schema, **{name: value})
        assert (error.param, error.code) == (name, "unsupported_parameter")
        assert reason in error.message
    for value in (None, harmless):
        assert error_of(schema, **{name: value}) is None
        assert name not in engine_body(schema, **{name: value})


def test_fields_that_only_the_service_acts_on_stay_with_it():
    for schema in (ChatRequest, CompletionRequest):
        sent = engine_body(schema, priority=5, cache_salt="x", session_id="s", top_k=3)
        assert sent.keys() - LEAST[schema].keys() == {"top_k"}
    assert engine_body(EmbeddingRequest, cache_salt="x", truncation_side="left") == {
        **LEAST[EmbeddingRequest], "truncate_prompt_tokens": -1, "truncation_side": "left",
    }  # fmt: skip


def test_options_that_are_null_are_as_if_they_were_left_out():
    nothing = {name: None for name, *_ in BOUNDS} | {"stop": None}
    for schema in (ChatRequest, CompletionRequest):
        assert engine_body(schema, **nothing) == LEAST[schema]


def test_prompt_logprobs_are_for_answers_that_are_not_streamed():
    for schema in (ChatRequest, CompletionRequest):
        assert error_of(schema, stream=True, prompt_logprobs=0).param == "prompt_logprobs"


@pytest.mark.parametrize(
    ("schema", "fields", "param"),
    [
        (ChatRequest, {"prompt_logprobs": 0}, "prompt_logprobs"),
        (ChatRequest, {"echo": True, "logprobs": True, "top_logprobs": 0}, "top_logprobs"),
        (CompletionRequest, {"prompt_logprobs": 20}, "prompt_logprobs"),
        (CompletionRequest, {"echo": True, "logprobs": 1}, "logprobs"),
    ],
)
def test_log_probabilities_of_the_prompt_are_for_one_choice(schema, fields, param):
    assert error_of(schema, n=1, **fields) is None
    assert error_of(schema, n=2, **fields).param == param
    assert error_of(schema, **{**fields, "n": 2, "echo": False, "prompt_logprobs": None}) is None


def test_log_probabilities_of_chosen_tokens_need_log_probabilities():
    assert error_of(ChatRequest, logprob_token_ids=[1]).param == "logprob_token_ids"
    assert error_of(ChatRequest, logprob_token_ids=[1], logprobs=True) is None
    assert error_of(CompletionRequest, logprob_token_ids=[1]).param == "logprob_token_ids"
    assert error_of(CompletionRequest, logprob_token_ids=[1], logprobs=0) is None


def test_a_prompt_ends_in_one_way():
    assert error_of(ChatRequest, continue_final_message=True) is None
    error = error_of(ChatRequest, continue_final_message=True, add_generation_prompt=True)
    assert error.param == "continue_final_message"


def test_the_size_of_a_prompt_counts_what_the_template_gets():
    def size(**fields):
        return ChatRequest.model_validate({**LEAST[ChatRequest], **fields}).prompt_estimate_tokens()

    assert size(documents=[{"text": "x" * 4_000}]) > size() + 900
    assert size(chat_template_kwargs={"deep": [{"a": "x" * 4_000}]}) > size() + 900


def test_a_session_names_the_place_of_a_prompt():
    for schema in (ChatRequest, CompletionRequest):
        one, same, other = (schema.model_validate({**LEAST[schema], "session_id": name}) for name in ("a", "a", "b"))
        assert one.affinity_prefix() == same.affinity_prefix() != other.affinity_prefix()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, 0), ({"truncate_prompt_tokens": 100}, 700), ({"truncate_prompt_tokens": -1}, 100)],
)
def test_what_is_cut_off_a_prompt_is_counted(fields, expected):
    body = CompletionRequest.model_validate({**LEAST[CompletionRequest], **fields})
    assert body.count_cut(900, 2, max_model_len=400) == expected


@pytest.mark.parametrize("name", ["embed_dtype", "endianness", "use_activation"])
def test_options_of_vectors_are_bounded(name):
    good = {"embed_dtype": "float16", "endianness": "big", "use_activation": False}[name]
    assert error_of(EmbeddingRequest, **{name: good}) is None
    assert error_of(EmbeddingRequest, **{name: "float8"}).param == name
