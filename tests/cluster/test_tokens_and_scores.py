"""Tokens and scores from real models, through the whole service."""

import httpx2
import pytest
from openai import OpenAI

from tests.service import CHAT, EMBED

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

MESSAGES = [{"role": "user", "content": "What is a batch?"}]
DOCUMENTS = ["Central banks raised interest rates again.", "Cats eat mice and fish.", "Rain is expected tomorrow."]


def test_tokens_of_a_chat_are_those_that_its_answer_counts(client: OpenAI, http: httpx2.Client) -> None:
    answer = http.post("/tokenize", json={"model": CHAT, "messages": MESSAGES}).json()
    chat = client.chat.completions.create(model=CHAT, messages=MESSAGES, max_tokens=1)
    assert answer["count"] == len(answer["tokens"]) == chat.usage.prompt_tokens
    text = http.post("/v1/detokenize", json={"model": CHAT, "tokens": answer["tokens"]}).json()["prompt"]
    assert MESSAGES[0]["content"] in text


def test_embedding_model_has_tokens_and_no_chat(http: httpx2.Client) -> None:
    answer = http.post("/v1/tokenize", json={"model": EMBED, "prompt": "cats", "return_token_strs": True}).json()
    assert answer["token_strs"] == ["[CLS]", "cats", "[SEP]"]
    refused = http.post("/v1/tokenize", json={"model": EMBED, "messages": MESSAGES})
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")


def test_document_that_answers_comes_first(http: httpx2.Client) -> None:
    body = {"model": EMBED, "query": "What do cats eat?", "documents": DOCUMENTS, "top_n": 2}
    answer = http.post("/v2/rerank", json=body).json()
    best, second = answer["results"]
    assert (best["index"], best["document"]["text"]) == (1, DOCUMENTS[1])
    assert best["relevance_score"] > 0.5 > second["relevance_score"]
    scored = http.post("/score", json={"model": EMBED, "text_1": body["query"], "text_2": DOCUMENTS}).json()
    assert scored["data"][1]["score"] == pytest.approx(best["relevance_score"], abs=1e-4)
    assert answer["usage"] == scored["usage"]
