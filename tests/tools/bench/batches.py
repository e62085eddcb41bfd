"""A batch against vLLM's own offline run of the same prompts, and against a loop of OpenAI's client over HTTP.

    python -m tests.tools.bench.batches --lines 2000 --tokens 16 --rounds 7
    python -m tests.tools.bench.batches --lines 50000 --tokens 4 --line-bytes 4150 --batch-only    # 208 MB

The batch's time runs from its creation to its end, start-up included; the offline run's leaves the engine's out. They
take turns, as the machine's own speed differs from one minute to the next, and each round compares what it has measured
itself. The service is halted while the offline run is measured.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from openai import AsyncOpenAI, OpenAI

from deployments.replica.scheduling.preparing import QUIET_S
from tests.tools.bench.offline import OfflineEngine
from tests.tools.bench.peers import ROOT, Model, Peer, read_model, run_manta

URL = "/v1/chat/completions"
CLIENTS = 64
METADATA_CHARS = 512
POLL_EVERY_S = 0.1
SETTLE_S = 2.0
WARM_UP_LINES = 32
OFFLINE, BATCH, HTTP = "vLLM offline (LLM.chat)", "batch", f"HTTP, {CLIENTS} clients"


def create_prompts(num: int) -> list[list[dict[str, str]]]:
    """Return chats of about forty words, no two alike."""
    return [
        [{"role": "user", "content": f"Question {n}. " + "Say what the old river told the town. " * 5}]
        for n in range(num)
    ]


class Progress:
    """When a batch had come how far; `note` takes seconds since its creation."""

    def __init__(self, num_lines: int) -> None:
        self._marks = [1, *(num_lines * fifth // 5 for fifth in range(1, 6))]
        self._reached: list[float] = []

    def note(self, seconds: float, num_done: int) -> None:
        """Take in how many lines are done."""
        while len(self._reached) < len(self._marks) and num_done >= self._marks[len(self._reached)]:
            self._reached.append(seconds)

    def told(self) -> dict[str, float]:
        """Return when the first line was done, and how long the first and the last fifth of the lines took."""
        return {
            "first_s": self._reached[0],
            "first_fifth_s": self._reached[1],
            "last_fifth_s": self._reached[5] - self._reached[4],
        }


def create_line(number: int, model: str, messages: Any, tokens: int, num_bytes: int) -> str:
    """Return a line of at least `num_bytes`, as far as metadata can fill it up: the model reads none of that."""
    body = {"model": model, "messages": messages, "max_tokens": tokens, "temperature": 0}

    def render() -> str:
        return json.dumps({"custom_id": str(number), "method": "POST", "url": URL, "body": body}) + "\n"

    missing = num_bytes - len(render())
    if missing > 0:
        body["metadata"] = {f"k{n}": "m" * METADATA_CHARS for n in range(-(-missing // (METADATA_CHARS + 10)))}
    return render()


def run_batch(client: OpenAI, model: str, prompts: list[Any], tokens: int, line_bytes: int = 0) -> dict[str, float]:
    """Return how long a batch took, from its creation on, and its tokens."""
    lines = [create_line(number, model, messages, tokens, line_bytes) for number, messages in enumerate(prompts)]
    content = "".join(lines).encode()
    print(f"{len(lines):,} lines, {len(content):,} bytes", file=sys.stderr)
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    started = time.perf_counter()
    batch = client.batches.create(input_file_id=file.id, endpoint=URL, completion_window="24h")
    done = Progress(len(prompts))
    while batch.status not in ("completed", "failed", "expired", "cancelled"):
        time.sleep(POLL_EVERY_S)
        batch = client.batches.retrieve(batch.id)
        done.note(time.perf_counter() - started, batch.request_counts.completed)
    assert batch.status == "completed", batch
    assert batch.request_counts.completed == len(prompts), batch.request_counts
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "tokens": batch.usage.output_tokens, **done.told()}


async def run_loop(url: str, key: str, model: str, prompts: list[Any], tokens: int) -> dict[str, float]:
    """Return how long the same requests took over HTTP, 64 at a time."""
    room, total = asyncio.Semaphore(CLIENTS), 0
    async with AsyncOpenAI(base_url=url, api_key=key, timeout=300) as client:

        async def ask(messages: Any) -> int:
            async with room:
                answer = await client.chat.completions.create(
                    model=model, messages=messages, max_tokens=tokens, temperature=0
                )
            return answer.usage.completion_tokens if answer.usage else 0

        started = time.perf_counter()
        total = sum(await asyncio.gather(*map(ask, prompts)))
    return {"seconds": time.perf_counter() - started, "tokens": total}


@dataclass(frozen=True, slots=True)
class Work:
    """What all of them do."""

    prompts: list[Any]
    tokens: int
    line_bytes: int


class Service:
    """The service, which takes the work as a batch, or request by request."""

    def __init__(self, peer: Peer, work: Work) -> None:
        target = peer.target
        self._url, self._key, self._model = target.base_url, str(target.api_key), target.model
        self._peer = peer
        self._work = work

    def run_batch(self, num_lines: int | None = None) -> dict[str, float]:
        """Return what a batch took, of the first lines only where their number is given."""
        work = self._work
        with OpenAI(base_url=self._url, api_key=self._key, timeout=300) as client:
            return run_batch(client, self._model, work.prompts[:num_lines], work.tokens, work.line_bytes)

    def run_loop(self) -> dict[str, float]:
        """Return what the requests took over HTTP."""
        return asyncio.run(run_loop(self._url, self._key, self._model, self._work.prompts, self._work.tokens))

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Have it take nothing of the machine."""
        assert self._peer.tree is not None
        self._peer.tree.pause()
        try:
            yield
        finally:
            self._peer.tree.resume()
            time.sleep(SETTLE_S)


def measure_rounds(service: Service, model: Model, work: Work, rounds: int) -> list[dict[str, Any]]:
    """Return what each took in each round."""
    results: list[dict[str, Any]] = []
    with OfflineEngine(model, work.prompts, work.tokens) as offline:
        offline.run(WARM_UP_LINES)

        def run_offline() -> dict[str, float]:
            with service.halted():
                return offline.run()

        def run_batch() -> dict[str, float]:
            time.sleep(QUIET_S + 1)  # Until the requests over HTTP are as long ago as if nobody had asked.
            return service.run_batch()

        runs = {OFFLINE: run_offline, BATCH: run_batch, HTTP: service.run_loop}
        for number in range(rounds):
            names = list(runs) if number % 2 == 0 else list(reversed(runs))
            results.append({name: runs[name]() for name in names})
            told = ", ".join(f"{name} {results[-1][name]['seconds']:.1f} s" for name in runs)
            print(f"round {number + 1}: {told}", file=sys.stderr)
    return results


def tell(results: list[dict[str, Any]], num_lines: int) -> None:
    """Print a table with the medians of the rounds; ratios are those within a round."""
    print("| run | seconds, each round | median | lines/s | of offline, each round | median | output tokens |", end="")
    print(" first line done after | first fifth | last fifth |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in results[0]:
        rounds = [result[name] for result in results]
        seconds = [told["seconds"] for told in rounds]
        row = [name, ", ".join(f"{one:.1f}" for one in seconds), f"{median(seconds):.1f}"]
        row.append(f"{num_lines / median(seconds):.1f}")
        if OFFLINE in results[0]:
            ratios = [result[OFFLINE]["seconds"] / result[name]["seconds"] for result in results]
            row += [", ".join(f"{one:.2f}" for one in ratios), f"{median(ratios):.2f}"]
        else:
            row += ["-", "-"]
        row.append(f"{rounds[0]['tokens']:,.0f}")
        for mark in ("first_s", "first_fifth_s", "last_fifth_s"):
            row.append(f"{median(told[mark] for told in rounds):.1f} s" if mark in rounds[0] else "-")
        print(f"| {' | '.join(row)} |")


def peak_memory_mb(title: str) -> float:
    """Return the most memory that a process whose title begins like that has had."""
    for process in psutil.process_iter(["cmdline"]):
        if " ".join(process.info["cmdline"] or []).startswith(title):
            status = Path(f"/proc/{process.pid}/status").read_text()
            return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    return float("nan")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--line-bytes", type=int, default=0, help="metadata fills the lines of the batch up to this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-only", action="store_true", help="neither offline nor over HTTP, and once")
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "bench.yaml")
    options = parser.parse_args()
    model, work = read_model(options.config), Work(create_prompts(options.lines), options.tokens, options.line_bytes)
    with run_manta(model) as peer:
        service = Service(peer, work)
        service.run_batch(WARM_UP_LINES)
        if options.batch_only:
            tell([{BATCH: service.run_batch()}], options.lines)
        else:
            tell(measure_rounds(service, model, work, options.rounds), options.lines)
        coordinator_mb = peak_memory_mb("ray::BatchCoordinator")
    print(f"Memory of the coordinator, at most: {coordinator_mb:.0f} MB")


if __name__ == "__main__":
    main()
