"""What offering the service's tools adds to a turn that calls none, through the whole service and a real model.

    python -m tests.tools.bench.offered_tools --rounds 400

Each round asks the same thing without tools, with the service's own, and with the same functions as the caller's own,
which the model reads too and the service does not run.
"""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from openai import OpenAI

from tests.tools.bench.figures import percentile
from tests.tools.bench.peers import ROOT, read_model, run_manta
from tests.tools.bench.tools import OURS, own_tools
from tests.tools.demo_model.built_in import CODE, FILES, PAGES, WEB

CONFIG = ROOT / "configs" / "local.yaml"
NOBODY = {"provider": {"name": "searxng", "url": "http://127.0.0.1:9"}}
NONE, CALLERS = "no tools", "the same functions, the caller's own"
WARM_UP_ROUNDS = 20


def write_config(directory: Path) -> Path:
    """Return local.yaml with a web search that nobody answers; with all three tools on offer the model just talks."""
    config = yaml.safe_load(CONFIG.read_text())
    config["applications"][0]["args"]["tools"]["web_search"] = NOBODY
    path = directory / "offered.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def tools_of(client: OpenAI) -> dict[str, list[Any]]:
    """Return the tools of each kind of turn."""
    store = client.vector_stores.create(name="offered")
    callers = [{"type": "function", "strict": False, **tool["function"]} for tool in (CODE, FILES, WEB, *PAGES)]
    return {NONE: [], OURS: own_tools(store.id), CALLERS: callers}


def first_text_ms(client: OpenAI, model: str, tools: list[Any]) -> float | None:
    """Return when the first text of a turn came; None where the model called a function instead."""
    started = time.perf_counter()
    first: float | None = None
    events = client.responses.create(
        model=model, input="Hello.", tools=tools, stream=True, store=False, max_output_tokens=16
    )
    for event in events:
        if first is None and event.type == "response.output_text.delta":
            first = (time.perf_counter() - started) * 1000
    return first


def measure(client: OpenAI, model: str, rounds: int) -> dict[str, list[float]]:
    """Return the times to first text, by what was offered; rounds in which a function was called are left out."""
    offered = tools_of(client)
    took: dict[str, list[float]] = {kind: [] for kind in offered}
    for number in range(WARM_UP_ROUNDS + rounds):
        times = {kind: first_text_ms(client, model, tools) for kind, tools in offered.items()}
        if number >= WARM_UP_ROUNDS and None not in times.values():
            for kind, first in times.items():
                took[kind].append(first or 0.0)
    return took


def tell(took: Mapping[str, list[float]]) -> None:
    """Print a table."""
    print("| offered | first text p50 | p95 | later than without tools, p50 | than the caller's own, p50 | turns |")
    print("|---|---|---|---|---|---|")
    for kind, times in took.items():
        later = [
            percentile([one - other for one, other in zip(times, took[base], strict=True)], 50)
            for base in (NONE, CALLERS)
        ]
        print(
            f"| {kind} | {percentile(times, 50):.1f} ms | {percentile(times, 95):.1f} ms | {later[0]:+.2f} ms "
            f"| {later[1]:+.2f} ms | {len(times)} |"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="mb-", dir="/tmp") as directory:
        model = read_model(write_config(Path(directory)))
        with (
            run_manta(model) as peer,
            OpenAI(base_url=peer.target.base_url, api_key=peer.target.api_key, timeout=120) as client,
        ):
            tell(measure(client, model.id, options.rounds))


if __name__ == "__main__":
    main()
