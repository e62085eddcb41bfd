"""Batches of numbered lines, and how they are followed to their end."""

import json
from collections import Counter
from typing import Any

from openai import OpenAI
from openai.types import Batch

from tests.service import CANARY, CHAT, eventually

URL = "/v1/chat/completions"
SAID = "Kanarienzeile-5b07"
"""What lines of batches say, and nothing else."""
ENDED = ("completed", "failed", "expired", "cancelled")


def line(number: int, model: str = CHAT, max_tokens: int = 4, **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"{CANARY} {SAID} {number}"}]
    body = {"model": model, "messages": messages, "max_tokens": max_tokens, **body}
    return {"custom_id": f"line-{number}", "method": "POST", "url": URL, "body": body}


def submit(client: OpenAI, lines: list[dict[str, Any]], endpoint: str = URL) -> Batch:
    content = "".join(json.dumps(one) + "\n" for one in lines).encode()
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h")  # type: ignore[arg-type]


def finish(client: OpenAI, batch: Batch, timeout_s: float = 300) -> Batch:
    def look() -> Batch | None:
        now = client.batches.retrieve(batch.id)
        return now if now.status in ENDED else None

    return eventually(look, timeout_s, f"{batch.id} ends")


def output_of(client: OpenAI, batch: Batch) -> list[dict[str, Any]]:
    assert batch.output_file_id is not None
    return [json.loads(one) for one in client.files.content(batch.output_file_id).content.splitlines()]


def check_complete(client: OpenAI, batch: Batch, num_lines: int) -> None:
    """Every line has one output in its place, the counts add up, and tokens are billed once."""
    assert batch.status == "completed"
    counts = batch.request_counts
    assert counts is not None
    assert (counts.total, counts.completed, counts.failed) == (num_lines, num_lines, 0)
    output = output_of(client, batch)
    assert [one["custom_id"] for one in output] == [f"line-{number}" for number in range(num_lines)]
    assert Counter(one["response"]["status_code"] for one in output) == {200: num_lines}
    assert batch.usage is not None
    assert batch.usage.total_tokens == sum(one["response"]["body"]["usage"]["total_tokens"] for one in output)


def until_quarter_done(client: OpenAI, batch: Batch) -> Batch:
    def look() -> Batch | None:
        now = client.batches.retrieve(batch.id)
        assert now.status not in ENDED, now
        counts = now.request_counts
        return now if counts and counts.total and counts.completed >= counts.total // 4 else None

    return eventually(look, 240, f"{batch.id} gets on")
