"""What scores may take: an embedding model reads each text once, a cross-encoder the query again with each document."""

import orjson
import pytest

from deployments.operations import Operation
from serve_app.operations.registry import create_operations
from serve_app.operations.routing import cache_salts
from serve_app.validation.body import parse_json_body
from tests.twins.engine import MemoryDirectory, Script, ScriptedEngine, model_card
from tests.twins.keys import principal_of_key


def cost(body, *, reads_pairs):
    name = Operation.RERANK if "query" in body else Operation.SCORE
    card = model_card("m", name, max_model_len=256, reads_pairs=reads_pairs)
    engine = ScriptedEngine(card, lambda _: Script())
    operation = create_operations(MemoryDirectory([engine]), cache_salts(b"s")).by_name[name]
    asked = parse_json_body(orjson.dumps({"model": "m", **body}), operation.schema)
    return operation.cost(asked, principal_of_key(account="acct")).prompt_tokens


def text(num_tokens):
    return "x" * (4 * num_tokens - 4)


@pytest.mark.parametrize(
    ("query", "document", "read_once", "read_in_pairs"),
    [(10, 20, 10 + 3 * 20, 3 * 30), (200, 200, 200 + 3 * 200, 3 * 256), (900, 10, 256 + 3 * 10, 3 * 256)],
)
def test_ranking_costs_what_is_read(query, document, read_once, read_in_pairs):
    body = {"query": text(query), "documents": [text(document)] * 3}
    assert cost(body, reads_pairs=False) == read_once
    assert cost(body, reads_pairs=True) == read_in_pairs


def test_pairs_cost_what_is_read():
    body = {"text_1": [text(10), text(20)], "text_2": [text(1), text(300)]}
    assert cost(body, reads_pairs=False) == 10 + 20 + 1 + 256
    assert cost(body, reads_pairs=True) == 11 + 256
