"""Shows figures as tables, and keeps them in `results/`: as JSON, and the tables as Markdown beside it.

What holds of them is copied into docs/measurements/index.md by hand.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.tools.bench.figures import NOISY_CORES, NOISY_SPREAD, Figures, median_of, ratio_of, spread_of, to_json

HERE = Path(__file__).parent
COLUMNS = (
    "clients",
    "peer",
    "req/s",
    "spread",
    "ratio",
    "tok/s",
    "TTFT p50",
    "p99",
    "ITL p50",
    "p99",
    "gap p99",
    "CPU s/1k",
    "client",
    "others",
    "speed",
    "PSS MB",
    "errors",
)
PROCESS_COLUMNS = ("peer", "process", "CPU s/1k")
LEAST_SHARE = 0.002


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of load: streaming or not, a prompt length, a number of clients."""

    mode: str
    prompt: str
    clients: int

    @property
    def title(self) -> str:
        """What the tables call the kind of load, without its clients."""
        return f"{self.mode}, {self.prompt} prompts"


Rounds = dict[Cell, dict[str, list[Figures]]]


def show(value: float, digits: int = 1) -> str:
    """Return a number for a table, a dash where there is none."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def row_of(cell: Cell, peer: str, rounds: Sequence[Figures], reference: Sequence[Figures], best: float) -> list[str]:
    """Return a peer's table row under one load; `best` is the highest speed that the machine had."""
    figures = median_of(rounds)
    spread = spread_of(rounds)
    return [
        str(cell.clients),
        peer,
        show(figures.requests_per_s),
        f"{spread:.0%}{' (!)' if spread > NOISY_SPREAD else ''}",
        f"{ratio_of(rounds, reference):.2f}",
        show(figures.tokens_per_s, 0),
        show(figures.ttft_p50_ms),
        show(figures.ttft_p99_ms),
        show(figures.itl_p50_ms, 2),
        show(figures.itl_p99_ms, 2),
        show(figures.gap_p99_ms),
        show(figures.cpu_s_per_1k_tokens, 3),
        show(figures.client_cpu_s_per_1k_tokens, 3),
        f"{show(figures.other_cores, 2)}{' (!)' if figures.other_cores > NOISY_CORES else ''}",
        show(figures.machine_speed / best, 2),
        show(figures.pss_mb, 0),
        str(figures.errors),
    ]


def tables_of(results: Rounds) -> dict[str, list[list[str]]]:
    """Return the rows of each table, under its title. Ratios are to the first peer of the same load."""
    tables: dict[str, list[list[str]]] = {}
    best = max(f.machine_speed for by_peer in results.values() for rounds in by_peer.values() for f in rounds)
    for cell, peers in results.items():
        reference = next(iter(peers.values()))
        rows = tables.setdefault(cell.title, [])
        rows.extend(row_of(cell, peer, rounds, reference, best) for peer, rounds in peers.items())
    return tables


def process_rows(results: Rounds) -> tuple[str, list[list[str]]]:
    """Return a title and rows: where each peer's processor time goes under its heaviest streaming load."""
    cell = max(results, key=lambda cell: (cell.mode == "stream", cell.prompt == "short", cell.clients))
    rows = []
    for peer, rounds in results[cell].items():
        shares = sorted(median_of(rounds).cpu_by_process.items(), key=lambda share: -share[1])
        rows += [[peer, title, show(cpu_s, 3)] for title, cpu_s in shares if cpu_s >= LEAST_SHARE]
    return f"processor seconds per 1,000 tokens by process: {cell.title}, {cell.clients} clients", rows


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> None:
    """Print one table."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, justify="left" if column in ("peer", "process", "figure") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def to_markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def to_records(results: Rounds) -> list[dict[str, object]]:
    """Return every round of every cell, as JSON can carry it."""
    return [
        {
            "mode": cell.mode,
            "prompt": cell.prompt,
            "clients": cell.clients,
            "peer": peer,
            "rounds": [*map(to_json, rounds)],
        }
        for cell, peers in results.items()
        for peer, rounds in peers.items()
    ]


def keep(
    heading: str,
    machine: dict[str, str],
    command: str,
    sections: dict[str, str],
    records: object,
    notes: Sequence[str] = (),
) -> Path:
    """Write a measurement's figures as JSON and its tables as Markdown; return the path of the tables."""
    stem = "".join(c if c.isalnum() else "-" for c in f"{machine['date']}-{heading}".replace(" UTC", ""))
    path = HERE / "results" / f"{stem}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        json.dumps({"command": command, "machine": machine, "notes": list(notes), "figures": records}) + "\n"
    )
    where = ", ".join(f"{key} {value}" for key, value in machine.items() if key != "date")
    text = [f"# {machine['date']}: {heading}\n", f"`{command}`  ", f"{where}  ", f"[figures]({path.name})\n"]
    text += [f"- {note}" for note in notes]
    for title, markdown in sections.items():
        text += [f"\n**{title}**\n", markdown]
    page = path.with_suffix(".md")
    page.write_text("\n".join(text) + "\n")
    return page
