"""Interactive requests beside a batch: how much later does their first text come, and how fast is the batch?

Requests arrive at random times at a fixed mean rate (an open loop), so that a slow answer holds none of the next back.
Each round has a side without a batch and one beside it, which take turns to be first; many short rounds meet the same
machine. Requests of the same rate come for a few seconds before those that count, and what the first of them waited,
which finds the batch having the engine for itself, is counted apart.

A virtual machine's host may withhold its cores for a while. Requests that meet that, alone or beside, are counted and
left out: a hundredth of the requests is few, and what they met would be all that the figure shows.
"""

import asyncio
import json
import math
import random
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import fmean

import uvloop
from openai import OpenAI

from deployments.replica.scheduling.preparing import QUIET_S
from tests.tools.bench.client import Connection, Sample
from tests.tools.bench.comparison import OUTPUT_TOKENS, PROMPT_TOKENS
from tests.tools.bench.figures import percentile, ratio_interval, seconds_per_token
from tests.tools.bench.load import connect
from tests.tools.bench.measure import calibrate, machine_speed, without_collector
from tests.tools.bench.peers import Peer
from tests.tools.bench.processes import TICKS_PER_S, withheld_ticks
from tests.tools.bench.prompts import Shape, create_prompt, render_request

_CONNECTIONS = 64
_LINES = 10_000
_WARM_S = 5.0
_LOOK_S = 0.05
_BEFORE_S = 0.25  # What was withheld so shortly before a request has left work that it meets.


@dataclass(frozen=True, slots=True)
class Side:
    """What interactive requests met, alone or beside a batch.

    Times are of the requests that the host did not disturb, `num_disturbed` others are left out; `all_p99_ms` alone is
    of all. `token_ms` is the median of the answers' times per token after the first, `withheld` how many of this
    machine's cores its host withheld on average, and `speed` how often a second a core did a fixed piece of work just
    before and after: it may change by a third within a minute, so that sides differ that were measured one after the
    other.
    """

    requests: int
    errors: int
    num_disturbed: int
    ttft_p50_ms: float
    ttft_p95_ms: float
    ttft_p99_ms: float
    all_p99_ms: float
    token_ms: float
    withheld: float
    speed: float


@dataclass(frozen=True, slots=True)
class BesideBatch:
    """Both sides, and the lines a second of the batch, alone and beside the requests.

    Nine times of ten, rounds like these would have a ratio of the 99th percentiles within `p99_ratio`. `after_quiet_ms`
    is the time to first text of the first request of each round, at its longest.
    """

    requests_per_second: float
    alone: Side
    beside: Side
    p99_ratio: tuple[float, float]
    after_quiet_ms: float
    batch_alone_lines_per_s: float
    batch_beside_lines_per_s: float

    def rows(self) -> list[tuple[str, float, float, float]]:
        """Return each figure alone and beside, and the ratio of the two."""
        more = [
            ("after_quiet_ms", math.nan, self.after_quiet_ms),
            ("batch lines/s", self.batch_alone_lines_per_s, self.batch_beside_lines_per_s),
        ]
        return rows_of(self.alone, self.beside, more, self.p99_ratio)


def rows_of(
    alone: Side, beside: Side, more: list[tuple[str, float, float]], p99_ratio: tuple[float, float]
) -> list[tuple[str, float, float, float]]:
    """Return each figure of two sides, and `more` of them, with the ratio of the two; `p99_ratio` comes last."""
    of_alone, of_beside = asdict(alone), asdict(beside)
    rows = [(name, of_alone[name], of_beside[name]) for name in of_alone] + more
    figures = [(name, one, other, other / one if one else math.nan) for name, one, other in rows]
    ends = zip(("p99 ratio, from", "to"), p99_ratio, strict=True)
    return figures + [(name, math.nan, math.nan, end) for name, end in ends]


def run_beside_batch(peer: Peer, rate: float, seconds: float, rounds: int) -> BesideBatch:
    """Measure `rounds` times `seconds` of `rate` requests a second alone, and as much beside a batch."""
    shape = Shape(calibrate(peer, PROMPT_TOKENS["short"]), OUTPUT_TOKENS, is_stream=True)
    uvloop.run(run_arrivals(peer, shape, rate, 1.0, 0, "warm"))
    alone, beside = Watch(), Watch()
    after_quiet_ms = 0.0
    lines, quiet_lines_per_s = 0, 0.0
    with Batch(peer) as batch:
        batch.cancel()

    def stay_alone(number: int) -> None:
        with alone.watching():
            _, counted = uvloop.run(run_arrivals(peer, shape, rate, seconds, number, f"alone {number}"))
        alone.rounds.append(counted)

    def go_beside(number: int) -> None:
        nonlocal after_quiet_ms, lines, quiet_lines_per_s
        with Batch(peer) as batch:
            batch.settle()
            lines_before = batch.num_done()
            with beside.watching():
                warm, counted = uvloop.run(run_arrivals(peer, shape, rate, seconds, number, f"beside {number}"))
            beside.rounds.append(counted)
            if warm[0].error is None:
                after_quiet_ms = max(after_quiet_ms, first_text_ms(warm[0]))
            lines += batch.num_done() - lines_before
            if number == 0:
                quiet_lines_per_s = batch.speed_alone()
            batch.cancel()

    for number in range(rounds):
        for side in (stay_alone, go_beside) if number % 2 == 0 else (go_beside, stay_alone):
            side(number)
    return BesideBatch(
        requests_per_second=rate,
        alone=alone.side(),
        beside=beside.side(),
        p99_ratio=ratio_interval(alone.firsts(), beside.firsts(), 99),
        after_quiet_ms=after_quiet_ms,
        batch_alone_lines_per_s=quiet_lines_per_s,
        batch_beside_lines_per_s=lines / beside.seconds,
    )


class Watch:
    """Watches one side of the comparison, and what the host withholds meanwhile."""

    def __init__(self) -> None:
        self.rounds: list[list[Sample]] = []
        self.seconds = 0.0
        self._speeds: list[float] = []
        self._moments: list[float] = []  # When the host withheld a tick of a core.

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch as long as the context lasts."""
        self._speeds.append(machine_speed())
        started, is_over = time.perf_counter(), threading.Event()
        watcher = threading.Thread(target=self._watch, args=[is_over])
        with without_collector():
            watcher.start()
            try:
                yield
            finally:
                is_over.set()
                watcher.join()
        self.seconds += time.perf_counter() - started
        self._speeds.append(machine_speed())

    def _watch(self, is_over: threading.Event) -> None:
        seen = withheld_ticks()
        while not is_over.wait(_LOOK_S):
            now = withheld_ticks()
            self._moments += [time.perf_counter()] * (now - seen)
            seen = now

    def side(self) -> Side:
        """Return what was seen."""
        samples = [sample for samples in self.rounds for sample in samples]
        good = [sample for sample in samples if sample.error is None]
        undisturbed = [sample for sample in good if not self._is_disturbed(sample)]
        firsts = [first_text_ms(sample) for sample in undisturbed]
        return Side(
            requests=len(samples),
            errors=len(samples) - len(good),
            num_disturbed=len(good) - len(undisturbed),
            ttft_p50_ms=percentile(firsts, 50),
            ttft_p95_ms=percentile(firsts, 95),
            ttft_p99_ms=percentile(firsts, 99),
            all_p99_ms=percentile([first_text_ms(sample) for sample in good], 99),
            token_ms=percentile([seconds_per_token(sample) for sample in undisturbed], 50) * 1000,
            withheld=len(self._moments) / TICKS_PER_S / self.seconds,
            speed=fmean(self._speeds),
        )

    def firsts(self) -> list[list[float]]:
        """Return the times to first text of each round that the host did not disturb, in ms."""
        good = [[sample for sample in samples if sample.error is None] for samples in self.rounds]
        return [[first_text_ms(sample) for sample in samples if not self._is_disturbed(sample)] for samples in good]

    def _is_disturbed(self, sample: Sample) -> bool:
        """Say whether the host withheld more than a tick before a request or until its end.

        It is found out a moment after it was.
        """
        first, last = sample.started - _BEFORE_S, sample.arrivals[-1] + 2 * _LOOK_S
        return bisect_right(self._moments, last) - bisect_left(self._moments, first) > 1


def first_text_ms(sample: Sample) -> float:
    """Return the time to first text of an answer that came, in ms."""
    return (sample.arrivals[0] - sample.started) * 1000


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

    def speed_alone(self) -> float:
        """Return how many lines a second are done once nobody else asks."""
        time.sleep(QUIET_S + 1)
        lines_before, started = self.num_done(), time.perf_counter()
        time.sleep(20)  # Lines come in waves: those that began together end together.
        return (self.num_done() - lines_before) / (time.perf_counter() - started)

    def cancel(self) -> None:
        """Stop the batch, and return once it has stopped."""
        self._client.batches.cancel(self._batch.id)
        while self._client.batches.retrieve(self._batch.id).status not in ("cancelled", "completed"):
            time.sleep(0.1)
