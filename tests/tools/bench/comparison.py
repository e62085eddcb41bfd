"""The comparison: every peer under every kind of load, in rounds."""

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console

from tests.tools.bench.figures import median_of
from tests.tools.bench.lineup import Lineup
from tests.tools.bench.measure import calibrate, may_stop, measure
from tests.tools.bench.prompts import Shape
from tests.tools.bench.report import Cell, Rounds, show
from tests.tools.bench.routes import Routes

OUTPUT_TOKENS = 64
PROMPT_TOKENS = {"short": 30, "long": 3990}
NUM_REQUESTS = {"short": {1: 32, 16: 320, 64: 768}, "long": {1: 8, 16: 64, 64: 192}}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured: a number of rounds, each with a number of requests that `scale` multiplies."""

    clients: tuple[int, ...]
    rounds: int
    modes: tuple[str, ...]
    prompts: tuple[str, ...]
    scale: float

    def cells(self) -> list[Cell]:
        """Return every kind of load; long prompts run with at most 16 clients unless only more are asked for."""
        few = tuple(n for n in self.clients if n <= 16) or self.clients
        return [
            Cell(mode, prompt, clients)
            for mode, prompt in itertools.product(self.modes, self.prompts)
            for clients in (self.clients if prompt == "short" else few)
        ]

    def num_requests(self, cell: Cell) -> int:
        """Return how many requests one round of a cell has: a whole number for each client, three at least."""
        known = NUM_REQUESTS[cell.prompt]
        num = known.get(cell.clients, cell.clients * 12) * self.scale
        return cell.clients * max(3, round(num / cell.clients))


def run_load(lineup: Lineup | Routes, plan: Plan, console: Console) -> Rounds:
    """Measure every cell on every peer in rounds, the peers taking turns, after a warm-up of each."""
    cells = plan.cells()
    first = lineup.use(lineup.labels[0])
    words = {prompt: calibrate(first, PROMPT_TOKENS[prompt]) for prompt in plan.prompts}
    ends_early = may_stop(first, OUTPUT_TOKENS)
    results: Rounds = {cell: {label: [] for label in lineup.labels} for cell in cells}
    warm: set[tuple[str, Cell]] = set()
    for number, cell, label in turns(plan, cells, lineup):
        peer = lineup.use(label)
        shape = Shape(words[cell.prompt], OUTPUT_TOKENS, cell.mode == "stream", ends_early)
        if (label, cell) not in warm:
            warm.add((label, cell))
            measure(peer, shape, cell.clients * 2, cell.clients, f"warm-up {cell}")
        figures = measure(peer, shape, plan.num_requests(cell), cell.clients, f"{number} {cell}")
        results[cell][label].append(figures)
        console.print(
            f"round {number + 1}: {cell.title}, {cell.clients} clients, {label}: {show(figures.requests_per_s)} "
            f"requests/s, TTFT p50 {show(figures.ttft_p50_ms)} ms, {figures.errors} errors",
            style="dim",
        )
    return results


def turns(plan: Plan, cells: Sequence[Cell], lineup: Lineup | Routes) -> Iterator[tuple[int, Cell, str]]:
    """Yield the order of measuring: peers alternate as often as changing them is cheap."""
    for number in range(plan.rounds):
        labels = rotate(lineup.labels, number)
        pairs = [(cell, label) for label in labels for cell in cells]
        if not lineup.restart:
            pairs = [(cell, label) for cell in cells for label in labels]
        yield from ((number, cell, label) for cell, label in pairs)


def rotate(labels: Sequence[str], by: int) -> list[str]:
    """Return the peers in another order for every round, so that none always follows the same one."""
    by %= len(labels)
    return [*labels[by:], *labels[:by]]


def added_ttft_rows(results: Rounds) -> list[list[str]]:
    """Return, for every cell and peer but the first, how much later than the first peer's its first text comes."""
    rows = []
    for cell, by_peer in results.items():
        (_, reference), *others = by_peer.items()
        for label, rounds in others:
            differences = [
                ours.ttft_p50_ms - theirs.ttft_p50_ms for ours, theirs in zip(rounds, reference, strict=True)
            ]
            base, own = median_of(reference).ttft_p50_ms, median_of(rounds).ttft_p50_ms
            row = [base, own, statistics.median(differences), min(differences), max(differences)]
            rows.append([str(cell.clients), label, *map(show, row)])
    return rows
