"""Interactive requests beside a batch: how much later does their first text come, and how fast is the batch?

Requests arrive at random times at a fixed mean rate (an open loop), so that a slow answer holds none of the next back.
Rounds without a batch and rounds beside one take turns. Requests of the same rate come for a few seconds before those
that count, and what the first of them waited, which finds the batch having the engine for itself, is told apart.
"""

import asyncio
import json
import random
import time
from dataclasses import dataclass

import uvloop
from openai import OpenAI

from tests.bench.client import Connection, Sample
from tests.bench.comparison import OUTPUT_TOKENS, PROMPT_TOKENS
from tests.bench.figures import percentile
from tests.bench.load import connect
from tests.bench.measure import calibrate
from tests.bench.peers import Peer
from tests.bench.prompts import Shape, create_prompt, render_request

_CONNECTIONS = 64
_LINES = 10_000
_WARM_S = 5.0


@dataclass(frozen=True, slots=True)
class BesideBatch:
    """Times to first text without and with a batch beside, in ms, and the lines a second of the batch.

    `after_quiet_ms` is that of the first request of each round, at its longest.
    """

    requests_per_second: float
    requests: int
    alone_p50_ms: float
    alone_p95_ms: float
    alone_p99_ms: float
    beside_p50_ms: float
    beside_p95_ms: float
    beside_p99_ms: float
    p99_ratio: float
    after_quiet_ms: float
    batch_alone_lines_per_s: float
    batch_beside_lines_per_s: float
    errors: int


def run_beside_batch(peer: Peer, rate: float, seconds: float, rounds: int) -> BesideBatch:
    """Measure `rounds` times `seconds` of `rate` requests a second alone, and as much beside a batch."""
    shape = Shape(calibrate(peer, PROMPT_TOKENS["short"]), OUTPUT_TOKENS, is_stream=True)
    uvloop.run(run_arrivals(peer, shape, rate, 1.0, 0, "warm"))
    alone: list[Sample] = []
    beside: list[Sample] = []
    after_quiet_ms = 0.0
    lines = quiet_lines = quiet_s = beside_s = 0.0
    with Batch(peer) as batch:
        batch.cancel()
    for number in range(rounds):
        _, counted = uvloop.run(run_arrivals(peer, shape, rate, seconds, number, f"alone {number}"))
        alone += counted
        with Batch(peer) as batch:
            batch.settle()
            lines_before, started = batch.num_done(), time.perf_counter()
            warm, counted = uvloop.run(run_arrivals(peer, shape, rate, seconds, number, f"beside {number}"))
            beside += counted
            after_quiet_ms = max(after_quiet_ms, first_texts(warm)[0])
            lines, beside_s = lines + batch.num_done() - lines_before, beside_s + time.perf_counter() - started
            time.sleep(3)  # Until the engine calls it quiet.
            lines_before, started = batch.num_done(), time.perf_counter()
            time.sleep(20)  # Lines come in waves: those that began together end together.
            quiet_lines, quiet_s = (
                quiet_lines + batch.num_done() - lines_before,
                quiet_s + time.perf_counter() - started,
            )
            batch.cancel()
    firsts, besides = first_texts(alone), first_texts(beside)
    return BesideBatch(
        requests_per_second=rate,
        requests=len(firsts),
        alone_p50_ms=percentile(firsts, 50),
        alone_p95_ms=percentile(firsts, 95),
        alone_p99_ms=percentile(firsts, 99),
        beside_p50_ms=percentile(besides, 50),
        beside_p95_ms=percentile(besides, 95),
        beside_p99_ms=percentile(besides, 99),
        p99_ratio=percentile(besides, 99) / percentile(firsts, 99),
        after_quiet_ms=after_quiet_ms,
        batch_alone_lines_per_s=quiet_lines / quiet_s,
        batch_beside_lines_per_s=lines / beside_s,
        errors=len(alone) + len(beside) - len(firsts) - len(besides),
    )


def first_texts(samples: list[Sample]) -> list[float]:
    """Return the times to first text of the answers that came, in ms."""
    return [(sample.arrivals[0] - sample.started) * 1000 for sample in samples if sample.error is None]


async def run_arrivals(
    peer: Peer, shape: Shape, rate: float, seconds: float, number: int, seed: str
) -> tuple[list[Sample], list[Sample]]:
    """Send requests at random times, which `number` tells, with prompts that `seed` tells.

    Returns what was seen of each, in order, those of the first `_WARM_S` apart.
    """
    rng, arrivals, samples = random.Random(seed), random.Random(number), []
    num_warm, num_counted = (max(1, round(rate * length_s)) for length_s in (_WARM_S, seconds))
    times = [arrivals.uniform(0, _WARM_S) for _ in range(num_warm)]
    times += [arrivals.uniform(_WARM_S, _WARM_S + seconds) for _ in range(num_counted)]
    done = asyncio.Event()

    def take(connection: Connection, sample: Sample) -> None:
        samples.append(sample)
        free.append(connection)
        if len(samples) == len(times):
            done.set()

    free = connections = await connect(peer.target, _CONNECTIONS, take)
    connections = list(connections)
    started = time.perf_counter()
    for at in sorted(times):
        request = render_request(peer.target, shape, create_prompt(rng, shape.num_words))
        await asyncio.sleep(max(0.0, started + at - time.perf_counter()))
        free.pop().send(request)
    await done.wait()
    for connection in connections:
        connection.close()
    samples.sort(key=lambda sample: sample.started)
    return samples[:num_warm], samples[num_warm:]


class Batch:
    """A batch with more lines than will be waited for."""

    def __init__(self, peer: Peer) -> None:
        target = peer.target
        self._client = OpenAI(base_url=target.base_url, api_key=target.api_key, timeout=60)
        self._model = target.model

    def __enter__(self) -> "Batch":
        content = "".join(json.dumps(self._line(number)) + "\n" for number in range(_LINES)).encode()
        file = self._client.files.create(file=("in.jsonl", content), purpose="batch")
        self._batch = self._client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def _line(self, number: int) -> dict[str, object]:
        messages = [{"role": "user", "content": f"Line {number}. " + "Say what the old river told the town. " * 4}]
        body = {"model": self._model, "messages": messages, "max_tokens": OUTPUT_TOKENS, "temperature": 0}
        return {"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": body}

    def num_done(self) -> int:
        """Return how many lines are done."""
        counts = self._client.batches.retrieve(self._batch.id).request_counts
        return counts.completed if counts else 0

    def settle(self) -> None:
        """Return once the batch runs with all its workers."""
        while self.num_done() < 600:
            time.sleep(0.2)

    def cancel(self) -> None:
        """Stop the batch, and return once it has stopped."""
        self._client.batches.cancel(self._batch.id)
        while self._client.batches.retrieve(self._batch.id).status not in ("cancelled", "completed"):
            time.sleep(0.1)
