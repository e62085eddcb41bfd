"""Scores and rankings beside vLLM's own, from an embedding model and from a cross-encoder, and what they take."""

import json
from unittest.mock import ANY

import pytest

from deployments.models.config import ModelConfig
from deployments.models.contract.errors import RequestRejected
from deployments.operations import ENGINE_OPERATIONS, Operation
from tests.contract.engine.conftest import POOLING, running_engine
from tests.contract.engine.replies import Collected

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

QUERY = "What do cats eat?"
DOCUMENTS = ["The budget was approved on Monday.", "A cat eats mice and fish.", "Rain is expected."]


@pytest.fixture(scope="module")
def cross_encoder():
    with running_engine("demo:rank", max_model_len=128, **POOLING) as engine:
        yield engine


def ask(engine, operation, body):
    """Return the answer of an operation's runner, and its summary."""
    from deployments.replica.runners import RunnerContext, create_runner

    context = RunnerContext(
        engine.model, engine.client, lambda name: getattr(engine.state, f"serving_{name}"), None, None
    )
    runner = create_runner(Operation(operation), context)
    reply = Collected()
    header = {"request_id": "req_1", "stream": False, "cache_salt": "salt", "priority": 0}
    engine.run(runner.run(header, json.dumps(body).encode(), reply))
    return json.loads(b"".join(reply.pieces)), reply.summary


def scores_of_vllm(engine, queries, documents, **more):
    from vllm.entrypoints.pooling.scoring.protocol import ScoreQueriesDocumentsRequest

    fields = {"model": engine.model, "queries": queries, "documents": documents, **more}
    answer = engine.run(engine.state.serving_scores(ScoreQueriesDocumentsRequest.model_validate(fields)))
    return [pair["score"] for pair in json.loads(bytes(answer.body))["data"]]


def tokens_of(engine, *texts):
    tokenizer = engine.client.renderer.get_tokenizer()
    return sum(len(tokenizer(text)["input_ids"]) for text in texts)


@pytest.mark.parametrize("name", ["embedder", "cross_encoder"])
def test_texts_are_cut_to_what_the_model_can_reach_before_they_become_tokens(request, monkeypatch, name):
    engine, long = request.getfixturevalue(name), "cat " * 100_000
    body = {"queries": [QUERY], "documents": [long, QUERY]}
    cut, summary = ask(engine, "score", body)
    monkeypatch.setattr("deployments.replica.renderers.CHARS_PER_TOKEN", 10**6)
    assert ask(engine, "score", body) == ({**cut, "created": ANY}, summary)


def test_embeddings_score_by_their_cosine_and_each_text_is_read_once(embedder):
    answer, summary = ask(embedder, "score", {"queries": [QUERY], "documents": DOCUMENTS})
    scores = [pair["score"] for pair in answer["data"]]
    assert scores == pytest.approx(scores_of_vllm(embedder, [QUERY], DOCUMENTS), abs=1e-5)
    assert max(scores) == scores[1]
    num_tokens = tokens_of(embedder, QUERY, *DOCUMENTS)
    assert answer["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    assert summary["usage"] == [num_tokens, 0, 0, 0]
    assert (answer["id"], answer["object"], answer["model"]) == ("score-1", "list", embedder.model)


def test_cosine_is_that_of_the_embeddings(embedder):
    vectors = [item["embedding"] for item in ask(embedder, "embeddings", {"input": [QUERY, *DOCUMENTS]})[0]["data"]]
    expected = [sum(a * b for a, b in zip(vectors[0], one, strict=True)) for one in vectors[1:]]
    answer, _ = ask(embedder, "score", {"queries": [QUERY], "documents": DOCUMENTS})
    assert [pair["score"] for pair in answer["data"]] == pytest.approx(expected, abs=1e-4)


def test_best_documents_come_first_and_no_more_than_asked_for(embedder):
    body = {"queries": [QUERY], "documents": DOCUMENTS, "top_n": 3, "return_documents": True}
    answer, _ = ask(embedder, "rerank", body)
    scores = scores_of_vllm(embedder, [QUERY], DOCUMENTS)
    order = sorted(range(3), key=lambda index: -scores[index])
    assert [result["index"] for result in answer["results"]] == order
    assert [result["relevance_score"] for result in answer["results"]] == pytest.approx(sorted(scores)[::-1], abs=1e-5)
    assert [result["document"]["text"] for result in answer["results"]] == [DOCUMENTS[index] for index in order]
    assert answer["id"] == "rerank-1"
    answer, _ = ask(embedder, "rerank", {**body, "top_n": 1, "return_documents": False})
    (best,) = answer["results"]
    assert best == {"index": 1, "relevance_score": pytest.approx(scores[1], abs=1e-5)}


@pytest.mark.parametrize("name", ["embedder", "cross_encoder"])
def test_text_that_is_too_long_is_cut(request, name):
    engine = request.getfixturevalue(name)
    body = {"queries": ["cats"], "documents": ["cats " * 2000, "dogs"]}
    answer, summary = ask(engine, "score", body)
    assert len(answer["data"]) == 2
    assert summary["usage"][0] < engine.client.model_config.max_model_len + 10
    earlier, cut = ask(engine, "score", {**body, "max_tokens_per_doc": 20, "max_tokens_per_query": 1_000_000})
    assert len(earlier["data"]) == 2
    assert cut["usage"][0] < summary["usage"][0]


def test_cross_encoder_reads_a_query_with_each_document(cross_encoder):
    answer, summary = ask(cross_encoder, "score", {"queries": [QUERY], "documents": DOCUMENTS})
    scores = [pair["score"] for pair in answer["data"]]
    assert scores == pytest.approx(scores_of_vllm(cross_encoder, [QUERY], DOCUMENTS), abs=1e-5)
    assert len(set(scores)) == 3
    assert all(0 < score < 1 for score in scores)
    assert summary["usage"][0] == tokens_of(cross_encoder, *([QUERY] * 3), *DOCUMENTS)
    raw, _ = ask(cross_encoder, "score", {"queries": [QUERY], "documents": DOCUMENTS, "use_activation": False})
    assert any(not 0 < pair["score"] < 1 for pair in raw["data"])


def test_pairs_are_scored_in_their_order(cross_encoder):
    answer, _ = ask(cross_encoder, "score", {"queries": DOCUMENTS, "documents": DOCUMENTS[::-1]})
    assert [pair["index"] for pair in answer["data"]] == [0, 1, 2]
    expected = scores_of_vllm(cross_encoder, DOCUMENTS, DOCUMENTS[::-1])
    assert [pair["score"] for pair in answer["data"]] == pytest.approx(expected, abs=1e-5)


def test_what_vllm_refuses_is_the_clients_error(cross_encoder):
    with pytest.raises(RequestRejected) as refused:
        ask(cross_encoder, "score", {"queries": [QUERY], "documents": DOCUMENTS, "truncate_prompt_tokens": 100_000})
    assert "max_model_len" in refused.value.message


def test_cross_encoder_has_the_operations_of_its_task_alone(cross_encoder):
    from deployments.replica.runners import RunnerContext, create_runner

    def find_serving(name):
        names = [f"{prefix}_{name}" for prefix in ("serving", "openai_serving")]
        return next((one for one in (getattr(cross_encoder.state, name, None) for name in names) if one), None)

    context = RunnerContext("m", None, find_serving, None, None)
    found = {operation for operation in ENGINE_OPERATIONS if create_runner(operation, context) is not None}
    assert found == ModelConfig(id="m", source="demo:rank", task="score", max_model_len=128).card.operations


def test_cross_encoder_counts_tokens(cross_encoder):
    answer, summary = ask(cross_encoder, "tokenize", {"prompt": QUERY})
    assert answer["count"] == tokens_of(cross_encoder, QUERY)
    assert answer["max_model_len"] == 128
    assert summary["usage"] == [0, 0, 0, 0]


def test_model_without_a_template_tokenizes_no_chat(cross_encoder, embedder):
    assert ask(cross_encoder, "tokenize", {"messages": [{"role": "user", "content": QUERY}]})[0]["count"] > 5
    with pytest.raises(RequestRejected, match="chat template"):
        ask(embedder, "tokenize", {"messages": [{"role": "user", "content": QUERY}]})
