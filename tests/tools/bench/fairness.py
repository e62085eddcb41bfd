"""Ten batches at once, nine of one account and one of another: what each account gets of the engine.

    python -m tests.tools.bench.fairness --lines 1000 --tokens 4

The other account's batch comes last. What counts is the time from its first line to its end.
"""

import argparse
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from openai import ConflictError, OpenAI

from tests.tools.bench.batches import URL, create_line, create_prompts
from tests.tools.bench.peers import ROOT, issue_key, read_model, run_manta

NUM_OF_ONE = 9
POLL_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Shares:
    """The lines a second of both accounts, and the fewest and the most lines of one of the nine batches."""

    seconds: float
    one: float
    other: float
    fewest: int
    most: int


def measure(one: OpenAI, other: OpenAI, model: str, num_lines: int, tokens: int) -> Shares:
    """Return what the accounts get while both have lines to run."""
    prompts = create_prompts(num_lines)
    content = "".join(create_line(n, model, messages, tokens, 0) for n, messages in enumerate(prompts)).encode()
    many, (single,) = submit(one, content, NUM_OF_ONE), submit(other, content, 1)
    while (first := num_done(other, single)) == 0:
        time.sleep(POLL_EVERY_S)
    started, before = time.perf_counter(), [num_done(one, batch) for batch in many]
    while other.batches.retrieve(single).status in ("in_progress", "finalizing"):
        time.sleep(POLL_EVERY_S)
    seconds = time.perf_counter() - started
    gained = [num_done(one, batch) - done for batch, done in zip(many, before, strict=True)]
    for batch in many:
        with suppress(ConflictError):  # It has ended.
            one.batches.cancel(batch)
    return Shares(seconds, sum(gained) / seconds, (num_lines - first) / seconds, min(gained), max(gained))


def submit(client: OpenAI, content: bytes, num: int) -> list[str]:
    """Return the ids of `num` new batches."""
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    create = client.batches.create
    return [create(input_file_id=file.id, endpoint=URL, completion_window="24h").id for _ in range(num)]


def num_done(client: OpenAI, batch: str) -> int:
    """Return how many lines of a batch are done."""
    counts = client.batches.retrieve(batch).request_counts
    return counts.completed if counts else 0


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "bench.yaml")
    options = parser.parse_args()
    model = read_model(options.config)
    with run_manta(model) as peer:
        url, second = peer.target.base_url, issue_key(peer.environment, "other")
        with (
            OpenAI(base_url=url, api_key=peer.target.api_key, timeout=60) as one,
            OpenAI(base_url=url, api_key=second, timeout=60) as other,
        ):
            shares = measure(one, other, model.id, options.lines, options.tokens)
    print("| seconds | nine batches of one account, lines/s | one of another | of the nine, fewest and most lines |")
    print("|---|---|---|---|")
    print(f"| {shares.seconds:.1f} | {shares.one:.1f} | {shares.other:.1f} | {shares.fewest}, {shares.most} |")


if __name__ == "__main__":
    main()
