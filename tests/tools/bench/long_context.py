"""Short requests beside one prompt of a million tokens: how long do they wait for it?"""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass

import uvloop

from tests.tools.bench.client import Connection, Request, Sample
from tests.tools.bench.comparison import OUTPUT_TOKENS
from tests.tools.bench.figures import percentile
from tests.tools.bench.load import ClosedLoop, connect
from tests.tools.bench.measure import calibrate, measure
from tests.tools.bench.peers import Peer
from tests.tools.bench.processes import memory_mb
from tests.tools.bench.prompts import Shape, create_prompt, create_requests, render_request


@dataclass(frozen=True, slots=True)
class LongContext:
    """Short requests' time to first text, alone and beside a very long prompt, and the long one's own."""

    prompt_tokens: int
    long_ttft_s: float
    alone_p50_ms: float
    alone_p99_ms: float
    beside_p50_ms: float
    beside_p99_ms: float
    beside_requests: int
    errors: int
    pss_mb: float


def run_long_context(peer: Peer, prompt_tokens: int, clients: int) -> LongContext:
    """Measure `clients` that send short requests, first alone, then for as long as one very long prompt takes."""
    short, per_word = Shape(calibrate(peer, 30), OUTPUT_TOKENS, is_stream=True), words_per_token(peer)
    alone = measure(peer, short, clients * 12, clients, "alone")
    long = create_requests(peer.target, Shape(int(prompt_tokens * per_word), 16, is_stream=True), 1, "long")[0]
    own, beside = uvloop.run(run_beside(peer, long, short, clients))
    good = [sample for sample in beside if sample.error is None]
    firsts = [(sample.arrivals[0] - sample.started) * 1000 for sample in good]
    if own.error is not None:
        raise ValueError(f"the long request failed: {own.error}")
    return LongContext(
        prompt_tokens=own.prompt_tokens,
        long_ttft_s=own.arrivals[0] - own.started,
        alone_p50_ms=alone.ttft_p50_ms,
        alone_p99_ms=alone.ttft_p99_ms,
        beside_p50_ms=percentile(firsts, 50),
        beside_p99_ms=percentile(firsts, 99),
        beside_requests=len(good),
        errors=alone.errors + len(beside) - len(good),
        pss_mb=memory_mb(peer.tree.pid)[0] if peer.tree else float("nan"),
    )


def words_per_token(peer: Peer) -> float:
    """Return how many words of a prompt make one token."""
    return calibrate(peer, 3000) / 3000


async def run_beside(peer: Peer, long: Request, short: Shape, clients: int) -> tuple[Sample, list[Sample]]:
    """Run one long request, and short ones from several clients until it is answered; return all samples."""
    done: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()

    def take(connection: Connection, sample: Sample) -> None:
        done.set_result(sample)

    (connection,) = await connect(peer.target, 1, take)

    def requests() -> Iterator[Request]:
        rng = random.Random("beside")
        while not done.done():
            yield render_request(peer.target, short, create_prompt(rng, short.num_words))

    connection.send(long)
    samples = await ClosedLoop(peer.target, requests(), clients).run()
    return await done, samples
