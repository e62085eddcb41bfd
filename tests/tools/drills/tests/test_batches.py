"""What a batch must be that ran through a drill: every line once, in its place, right, and charged once."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.serve.batch_calls import line
from tests.serve.ingress import answer_to
from tests.tools.drills.batches import LINE_TOKENS, check_batch

NUM_LINES = 4
Outputs = list[dict[str, Any]]


def outputs() -> Outputs:
    return [output(number) for number in range(NUM_LINES)]


def output(number: int) -> dict[str, Any]:
    text = answer_to(line(number)["body"]["messages"][0]["content"], LINE_TOKENS)
    body = {"choices": [{"message": {"content": text}}], "usage": {"total_tokens": 10}}
    return {"custom_id": f"line-{number}", "response": {"status_code": 200, "body": body}}


def judged(written: Outputs, completed: int = NUM_LINES, charged: int = 10 * NUM_LINES) -> str:
    counts = SimpleNamespace(completed=completed, failed=NUM_LINES - completed)
    usage = SimpleNamespace(total_tokens=charged)
    batch: Any = SimpleNamespace(
        id="batch_1",
        status="completed",
        created_at=100,
        completed_at=160,
        request_counts=counts,
        usage=usage,
        output_file_id="file_1",
    )
    content = SimpleNamespace(content=b"\n".join(json.dumps(one).encode() for one in written))
    client: Any = SimpleNamespace(
        batches=SimpleNamespace(retrieve=lambda batch_id: batch), files=SimpleNamespace(content=lambda file_id: content)
    )
    return check_batch(client, batch, NUM_LINES)


def other_text(written: Outputs) -> None:
    written[2]["response"]["body"]["choices"][0]["message"]["content"] = "another "


def lost_token(written: Outputs) -> None:
    message = written[2]["response"]["body"]["choices"][0]["message"]
    message["content"] = message["content"].partition(" ")[2]


def test_batch_in_which_all_went_well_is_exact() -> None:
    assert judged(outputs()) == "exact: 4 lines in 60 s"


@pytest.mark.parametrize(
    "harm",
    [lambda written: written.pop(), lambda written: written.append(written[0]), list.reverse, other_text, lost_token],
)
def test_line_that_is_lost_or_comes_twice_or_is_wrong_is_seen(harm: Callable[[Outputs], None]) -> None:
    written = outputs()
    harm(written)
    assert not judged(written).startswith("exact")


def test_failed_line_and_double_charge_are_seen() -> None:
    assert not judged(outputs(), completed=3).startswith("exact")
    assert not judged(outputs(), charged=50).startswith("exact")
