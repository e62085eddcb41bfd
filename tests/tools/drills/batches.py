"""A batch that runs through a drill: every line must be answered once, right, in its place, and charged once."""

import asyncio
from collections.abc import Sequence
from typing import Any

from openai import OpenAI
from openai.types import Batch

from tests.serve.batch_calls import finish, line, output_of, submit
from tests.serve.ingress import answer_to

BATCH_TIMEOUT_S = 1800.0
LINE_TOKENS = 4


class RunningBatch:
    """A batch, submitted when this is created."""

    def __init__(self, url: str, key: str, num_lines: int) -> None:
        self._client = OpenAI(base_url=url, api_key=key, max_retries=5, timeout=120)
        self._num_lines = num_lines
        lines = [line(number, max_tokens=LINE_TOKENS) for number in range(num_lines)]
        self._batch = submit(self._client, lines)

    async def check(self) -> str:
        """Return what became of it, as `check_batch` does, once it has ended."""
        return await asyncio.to_thread(check_batch, self._client, self._batch, self._num_lines)


def check_batch(client: OpenAI, batch: Batch, num_lines: int) -> str:
    """Return "exact" for a batch in which every line was answered once and right, else what is wrong."""
    ended = finish(client, batch, BATCH_TIMEOUT_S)
    counts = ended.request_counts
    if ended.status != "completed" or counts is None or (counts.completed, counts.failed) != (num_lines, 0):
        return f"{ended.status}, {counts}"
    output = output_of(client, ended)
    if [one["custom_id"] for one in output] != [f"line-{number}" for number in range(num_lines)]:
        return f"{len(output)} outputs of {num_lines} lines, or not in their places"
    wrong = _wrong_lines(output)
    used = sum(one["response"]["body"]["usage"]["total_tokens"] for one in output)
    charged = ended.usage.total_tokens if ended.usage else 0
    if wrong or used != charged:
        return f"{wrong} lines have another text, {charged} tokens charged for {used}"
    return f"exact: {num_lines} lines in {(ended.completed_at or 0) - ended.created_at} s"


def _wrong_lines(output: Sequence[dict[str, Any]]) -> int:
    num_wrong = 0
    for number, one in enumerate(output):
        prompt = line(number)["body"]["messages"][0]["content"]
        said = one["response"]["body"]["choices"][0]["message"]["content"]
        num_wrong += said != answer_to(prompt, LINE_TOKENS)
    return num_wrong
