"""Many streams held open at once: does every one of them go on, and does the engine stop when they are gone?"""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import uvloop

from tests.tools.bench.client import Sample
from tests.tools.bench.figures import percentile
from tests.tools.bench.load import connect
from tests.tools.bench.measure import Meter, calibrate
from tests.tools.bench.peers import Peer
from tests.tools.bench.prompts import Shape, create_requests

PROMPT_TOKENS = 30
OUTPUT_TOKENS = 4000  # More than a stream gets through while it is held.
START_TIMEOUT_S = 180


@dataclass(frozen=True, slots=True)
class OpenStreams:
    """What became of streams that were held open together. Times in seconds.

    `completed` reached their token limit, `dropped` broke off or never began, `stalled` brought nothing in the
    last ten seconds. `quiet_s` is how long the server went on working after the clients had hung up.
    """

    opened: int
    completed: int
    dropped: int
    stalled: int
    first_text_p50_s: float
    first_text_max_s: float
    events_per_s: float
    fewest_events: int
    longest_pause_s: float
    cpu_cores: float
    client_cores: float
    other_cores: float
    pss_mb: float
    quiet_s: float
    first_error: str | None


def hold_streams(peer: Peer, num: int, hold_s: float) -> OpenStreams:
    """Open `num` streams at once, hold them for `hold_s` from the last one's first text, then hang up on all."""
    shape = Shape(calibrate(peer, PROMPT_TOKENS), OUTPUT_TOKENS, is_stream=True, may_stop=True)
    outcome: OpenStreams = uvloop.run(hold_streams_open(peer, num, hold_s, shape))
    return outcome


async def hold_streams_open(peer: Peer, num: int, hold_s: float, shape: Shape) -> OpenStreams:
    """As `hold_streams`, on a running loop."""
    ended: list[Sample] = []
    requests = create_requests(peer.target, shape, num, "open")
    connections = await connect(peer.target, num, lambda connection, sample: ended.append(sample))
    for connection, request in zip(connections, requests, strict=True):
        connection.send(request)
    await wait_until_begun([connection.sample for connection in connections])
    began, meter = time.perf_counter(), Meter(peer)
    before = sum(len(connection.sample.arrivals) for connection in connections)
    await asyncio.sleep(hold_s)
    now = time.perf_counter()
    took_s = now - began
    costs = meter.read()
    samples = [connection.sample for connection in connections]
    for connection in connections:
        connection.close()
    firsts = [sample.arrivals[0] - sample.started for sample in samples if sample.arrivals]
    pauses = [later - sooner for s in samples for sooner, later in itertools.pairwise(s.arrivals)]
    return OpenStreams(
        opened=len(firsts),
        completed=sum(sample.error is None for sample in ended),
        dropped=sum(sample.error is not None or not sample.arrivals for sample in samples),
        stalled=sum(sample.ended == 0 and sample.arrivals[-1] < now - 10 for sample in samples if sample.arrivals),
        first_text_p50_s=percentile(firsts, 50),
        first_text_max_s=max(firsts, default=float("nan")),
        events_per_s=(sum(len(sample.arrivals) for sample in samples) - before) / took_s,
        fewest_events=min(len(sample.arrivals) for sample in samples),
        longest_pause_s=max(pauses, default=float("nan")),
        cpu_cores=costs.cpu_s / took_s,
        client_cores=costs.client_cpu_s / took_s,
        other_cores=costs.other_cores,
        pss_mb=costs.pss_mb,
        quiet_s=await wait_until_quiet(peer),
        first_error=next((sample.error for sample in ended if sample.error), None),
    )


async def wait_until_begun(samples: Sequence[Sample]) -> None:
    """Wait until every stream has brought text or has ended, for a bounded time."""
    deadline = time.perf_counter() + START_TIMEOUT_S
    while any(not sample.arrivals and sample.ended == 0 for sample in samples):  # An event costs each read.
        if time.perf_counter() > deadline:
            return
        await asyncio.sleep(0.1)


def tree_cpu_s(peer: Peer) -> float:
    """Return the processor seconds of a peer, NaN where they cannot be seen."""
    return peer.tree.cpu_s() if peer.tree else float("nan")


async def wait_until_quiet(peer: Peer, timeout_s: float = 60) -> float:
    """Return after how many seconds a server without clients takes less than a fifth of a core."""
    began = time.perf_counter()
    while (passed := time.perf_counter() - began) < timeout_s:
        before = tree_cpu_s(peer)
        await asyncio.sleep(0.5)
        if not tree_cpu_s(peer) - before > 0.1:
            return passed
    return float("inf")
