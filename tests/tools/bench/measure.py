"""Measures one peer under one load."""

import gc
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop

from tests.tools.bench.client import Sample
from tests.tools.bench.figures import Costs, Figures, summarize
from tests.tools.bench.load import ClosedLoop
from tests.tools.bench.peers import Peer
from tests.tools.bench.processes import machine_cpu_s, memory_mb
from tests.tools.bench.prompts import Shape, create_requests


def own_cpu_s() -> float:
    """Return the processor seconds that this process has taken."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def machine_speed() -> float:
    """Return how many times a second one core does a fixed piece of work of a few milliseconds."""
    took = []
    for _ in range(7):
        began = time.perf_counter()
        sum(value * value for value in range(50_000))
        took.append(time.perf_counter() - began)
    return 1 / sorted(took)[len(took) // 2]


def drive(peer: Peer, shape: Shape, num: int, clients: int, seed: str) -> list[Sample]:
    """Send `num` requests from several clients and return what was seen."""
    loop = ClosedLoop(peer.target, create_requests(peer.target, shape, num, seed), clients)
    samples: list[Sample] = uvloop.run(loop.run())
    return samples


def measure(peer: Peer, shape: Shape, num: int, clients: int, seed: str) -> Figures:
    """Send `num` requests from several clients and return the figures.

    Raises:
        ValueError: not one answer was right.
    """
    requests = create_requests(peer.target, shape, num, seed)
    loop = ClosedLoop(peer.target, requests, clients)
    with without_collector():
        meter = Meter(peer)
        samples = uvloop.run(loop.run())
        costs = meter.read()
    return summarize(samples, costs)


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep Python's collector from adding its pauses to what this process measures."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Meter:
    """Counts what is taken from the machine from now on."""

    def __init__(self, peer: Peer) -> None:
        self._tree = peer.tree
        self._speed = machine_speed()
        self._before = self._tree.cpu_by_process() if self._tree else {}
        self._own = own_cpu_s()
        self._machine = machine_cpu_s()
        self._began = time.perf_counter()

    def read(self) -> Costs:
        """Return what was taken so far."""
        took_s = time.perf_counter() - self._began
        machine, own = machine_cpu_s() - self._machine, own_cpu_s() - self._own
        now = self._tree.cpu_by_process() if self._tree else {}
        shares: dict[str, float] = {}
        for pid, (title, cpu_s) in now.items():
            _, before = self._before.get(pid, (title, 0.0))
            shares[title] = shares.get(title, 0.0) + cpu_s - before
        # Totals, not the sum of the shares: what a process has taken goes to its parent when it ends.
        server = total(now) - total(self._before) if self._tree else float("nan")
        pss_mb, peak_rss_mb = memory_mb(self._tree.pid) if self._tree else (float("nan"), float("nan"))
        return Costs(server, own, max(0.0, machine - server - own) / took_s, self._speed, pss_mb, peak_rss_mb, shares)


def total(cpu_by_process: dict[int, tuple[str, float]]) -> float:
    """Return the processor seconds of all processes together."""
    return sum(cpu_s for _, cpu_s in cpu_by_process.values())


def calibrate(peer: Peer, prompt_tokens: int) -> int:
    """Return how many words make a prompt of at most `prompt_tokens` tokens with the peer's model."""
    one, many = (prompt_tokens_of(peer, words) for words in (1, 401))
    per_word = (many - one) / 400
    num_words = max(1, int((prompt_tokens - one) / per_word) + 1)
    while num_words > 1 and prompt_tokens_of(peer, num_words, tries=4) > prompt_tokens:
        num_words -= max(1, num_words // 200)
    return num_words


def prompt_tokens_of(peer: Peer, num_words: int, tries: int = 1) -> int:
    """Return the largest number of tokens among prompts of a number of words."""
    samples = drive(peer, Shape(num_words, 2, is_stream=False), tries, 1, f"calibrate-{num_words}")
    if error := next((sample.error for sample in samples if sample.error), None):
        raise ValueError(error)
    return max(sample.prompt_tokens for sample in samples)


def may_stop(peer: Peer, output_tokens: int) -> bool:
    """Whether the model ends answers before `output_tokens`."""
    samples = drive(peer, Shape(20, output_tokens, is_stream=False, may_stop=True), 8, 8, "may-stop")
    return any(sample.completion_tokens < output_tokens for sample in samples)
