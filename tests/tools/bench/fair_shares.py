"""What one account gets beside another that sends a hundred times as much: its time to first text, and its share.

Two parts, each in rounds that take turns: requests at random times alone and beside the flood of another account,
whose own throughput is compared with what it has alone; and two accounts that both want more than there is, one with
twice the streams of the other. A flood comes from a process of its own, so that it holds no other client up.
"""

import multiprocessing
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from statistics import fmean
from typing import Any

import uvloop

from tests.tools.bench.beside_batch import Side, Watch, rows_of, run_arrivals
from tests.tools.bench.client import Connection, Request, Sample
from tests.tools.bench.comparison import OUTPUT_TOKENS, PROMPT_TOKENS
from tests.tools.bench.figures import ratio_interval
from tests.tools.bench.load import ClosedLoop
from tests.tools.bench.measure import calibrate
from tests.tools.bench.peers import Peer, issue_key
from tests.tools.bench.prompts import Shape, Target, create_prompt, render_request

PLACES = 64
"""How many requests the engine runs at once: fewer than either account would like."""
_SETTLE_S = 5.0


@dataclass(frozen=True, slots=True)
class FairShares:
    """Both sides of the requests of one account, and the tokens a second of the others.

    Nine times of ten, rounds like these would have a ratio of the 99th percentiles within `p99_ratio`. `shares` are
    the parts of all tokens that two accounts got, the one with fewer streams first.
    """

    alone: Side
    beside: Side
    p99_ratio: tuple[float, float]
    flood_alone_tokens_per_s: float
    flood_beside_tokens_per_s: float
    all_beside_tokens_per_s: float
    shares: tuple[float, float]

    def rows(self) -> list[tuple[str, float, float, float]]:
        """Return each figure alone and beside, and the ratio of the two."""
        more = [
            ("flood, tokens/s", self.flood_alone_tokens_per_s, self.flood_beside_tokens_per_s),
            ("all, tokens/s", self.flood_alone_tokens_per_s, self.all_beside_tokens_per_s),
            ("share of fewer, of more streams", *self.shares),
        ]
        return rows_of(self.alone, self.beside, more, self.p99_ratio)


def run_fair_shares(peer: Peer, rate: float, seconds: float, rounds: int, streams: int) -> FairShares:
    """Measure `rounds` times `seconds`: `rate` requests a second beside `streams` streams of another account."""
    shape = Shape(calibrate(peer, PROMPT_TOKENS["short"]), OUTPUT_TOKENS, is_stream=True)
    flooder = replace(peer.target, api_key=issue_key(peer.environment, "flooder"))
    uvloop.run(run_arrivals(peer, shape, rate, 1.0, 0, "warm"))
    alone, beside = Watch(), Watch()
    flood_alone: list[float] = []
    flood_beside: list[float] = []
    own: list[float] = []

    def stay_alone(number: int) -> None:
        with alone.watching():
            _, counted = uvloop.run(run_arrivals(peer, shape, rate, seconds, number, f"alone {number}"))
        alone.rounds.append(counted)

    def go_beside(number: int) -> None:
        with flooding(flooder, shape, streams) as flood:
            flood_alone.append(flood.tokens_per_s(seconds))
            started, before = time.perf_counter(), flood.tokens
            with beside.watching():
                warm, counted = uvloop.run(run_arrivals(peer, shape, rate, seconds, number, f"beside {number}"))
            taken_s = time.perf_counter() - started
            flood_beside.append((flood.tokens - before) / taken_s)
            own.append(sum(_tokens(sample) for sample in warm + counted) / taken_s)
        beside.rounds.append(counted)

    for number in range(rounds):
        for side in (stay_alone, go_beside) if number % 2 == 0 else (go_beside, stay_alone):
            side(number)
    with flooding(flooder, shape, streams) as many, flooding(peer.target, shape, streams // 2) as few:
        before = few.tokens, many.tokens
        time.sleep(max(60.0, seconds))
        gained = few.tokens - before[0], many.tokens - before[1]
    return FairShares(
        alone=alone.side(),
        beside=beside.side(),
        p99_ratio=ratio_interval(alone.firsts(), beside.firsts(), 99),
        flood_alone_tokens_per_s=fmean(flood_alone),
        flood_beside_tokens_per_s=fmean(flood_beside),
        all_beside_tokens_per_s=fmean(flood_beside) + fmean(own),
        shares=(gained[0] / sum(gained), gained[1] / sum(gained)),
    )


class Flood:
    """Streams of one account, each followed by the next at once."""

    def __init__(self, tokens: Any) -> None:
        self._tokens = tokens

    @property
    def tokens(self) -> int:
        """How many tokens of prompts and answers have been served so far."""
        return int(self._tokens.value)

    def tokens_per_s(self, seconds: float) -> float:
        """Return how many are served a second, over the next seconds."""
        started, before = time.perf_counter(), self.tokens
        time.sleep(seconds)
        return (self.tokens - before) / (time.perf_counter() - started)


@contextmanager
def flooding(target: Target, shape: Shape, streams: int) -> Iterator[Flood]:
    """Flood a server from another process as long as the context lasts; it runs with all streams when this yields."""
    context = multiprocessing.get_context("spawn")
    tokens, is_over = context.Value("q", 0), context.Event()
    process = context.Process(target=_flood, args=(target, shape, streams, tokens, is_over))
    process.start()
    try:
        flood = Flood(tokens)
        while not flood.tokens:
            time.sleep(0.05)
        time.sleep(_SETTLE_S)
        yield flood
    finally:
        is_over.set()
        process.join(60)
        process.kill()


def _flood(target: Target, shape: Shape, streams: int, tokens: Any, is_over: Any) -> None:
    def requests() -> Iterator[Request]:
        rng = random.Random("flood")
        for _ in count():
            if is_over.is_set():
                return
            yield render_request(target, shape, create_prompt(rng, shape.num_words))

    class Counting(ClosedLoop):
        def _on_done(self, connection: Connection, sample: Sample) -> None:
            with tokens.get_lock():
                tokens.value += _tokens(sample)
            self._send_next(connection)

    uvloop.run(Counting(target, requests(), streams).run())


def _tokens(sample: Sample) -> int:
    return sample.prompt_tokens + sample.completion_tokens
