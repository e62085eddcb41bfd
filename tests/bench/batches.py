"""A batch against vLLM's own offline run of the same prompts, and against a loop of OpenAI's client over HTTP.

    python -m tests.bench.batches --lines 2000 --tokens 16
    python -m tests.bench.batches --lines 50000 --tokens 4 --line-bytes 4150 --batch-only    # 208 MB

The batch's time runs from its creation to its end, start-up included; the offline run's leaves the engine's out.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from openai import AsyncOpenAI, OpenAI

from tests.bench.peers import ROOT, Model, Peer, parse_spec, read_model, start_peer, stop_peer

URL = "/v1/chat/completions"
CLIENTS = 64
METADATA_CHARS = 512
OFFLINE = """
import json, sys, time
from vllm import LLM, SamplingParams
asked = json.load(sys.stdin)
llm = LLM(model=asked["model"], **asked["engine"])
sampling = SamplingParams(temperature=0, max_tokens=asked["tokens"])
llm.chat(asked["prompts"][:32], sampling, use_tqdm=False)
rounds = []
for _ in range(2):
    started = time.perf_counter()
    outputs = llm.chat(asked["prompts"], sampling, use_tqdm=False)
    rounds.append(time.perf_counter() - started)
tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
print("RESULT", json.dumps({"seconds": min(rounds), "tokens": tokens}))
"""


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
    """Return a line of at least so many bytes, as far as metadata can fill it up: the model reads none of that."""
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
        time.sleep(0.2)
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


def run_offline(model: Model, prompts: list[Any], tokens: int) -> dict[str, float]:
    """Return how long vLLM took without a server, the better of two rounds."""
    asked = {"model": model.directory, "engine": model.engine, "prompts": prompts, "tokens": tokens}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        input=json.dumps(asked),
        env=os.environ | model.environment,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert found, done.stderr[-3000:]
    result: dict[str, float] = json.loads(found[0].removeprefix("RESULT "))
    return result


def measure_service(
    peer: Peer, prompts: list[Any], tokens: int, line_bytes: int, batch_only: bool
) -> dict[str, dict[str, float]]:
    """Return what a running service took for the batch, the better of two rounds, and for the loop."""
    target = peer.target
    url = f"http://{target.host}:{target.port}/v1"
    with OpenAI(base_url=url, api_key=target.api_key, timeout=300) as client:
        run_batch(client, target.model, prompts[:32], tokens)
        first = run_batch(client, target.model, prompts, tokens, line_bytes)
        if batch_only:
            return {"batch": first}
        second = run_batch(client, target.model, prompts, tokens, line_bytes)
    loop = asyncio.run(run_loop(url, str(target.api_key), target.model, prompts, tokens))
    return {"batch": min(first, second, key=lambda one: one["seconds"]), f"HTTP, {CLIENTS} clients": loop}


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
    parser.add_argument("--batch-only", action="store_true", help="neither offline nor over HTTP, and once")
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "bench.yaml")
    options = parser.parse_args()
    model, prompts = read_model(options.config), create_prompts(options.lines)
    results = {} if options.batch_only else {"vLLM offline (LLM.chat)": run_offline(model, prompts, options.tokens)}
    with TemporaryDirectory(prefix="mb-", dir="/tmp") as directory:
        peer = start_peer(parse_spec("manta"), 0, Path(directory), model)
        try:
            results |= measure_service(peer, prompts, options.tokens, options.line_bytes, options.batch_only)
            coordinator_mb = peak_memory_mb("ray::BatchCoordinator")
        finally:
            stop_peer(peer)
    offline = next(iter(results.values()))["seconds"]
    print(
        "| run | seconds | lines/s | of the first | output tokens | first line done after | first fifth | last fifth |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, told in results.items():
        rate, ratio = options.lines / told["seconds"], offline / told["seconds"]
        times = [
            f"{told[mark]:.1f} s" if mark in told else "-" for mark in ("first_s", "first_fifth_s", "last_fifth_s")
        ]
        row = [name, f"{told['seconds']:.1f}", f"{rate:.1f}", f"{ratio:.2f}", f"{told['tokens']:,.0f}", *times]
        print(f"| {' | '.join(row)} |")
    print(f"Memory of the coordinator, at most: {coordinator_mb:.0f} MB")


if __name__ == "__main__":
    main()
