"""The command line of the bench."""

import argparse
import dataclasses
import resource
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from tests.tools.bench import code_interpreter, file_search
from tests.tools.bench.beside_batch import BesideBatch, run_beside_batch
from tests.tools.bench.comparison import Plan, added_ttft_rows, run_load
from tests.tools.bench.fair_shares import PLACES, FairShares, run_fair_shares
from tests.tools.bench.figures import NOISY_CORES, NOISY_SPREAD
from tests.tools.bench.lineup import Lineup
from tests.tools.bench.long_context import run_long_context
from tests.tools.bench.machine import describe_machine
from tests.tools.bench.open_streams import hold_streams
from tests.tools.bench.peers import ROOT, Peer, parse_spec, read_model
from tests.tools.bench.report import (
    COLUMNS,
    PROCESS_COLUMNS,
    keep,
    print_table,
    process_rows,
    show,
    tables_of,
    to_markdown,
    to_records,
)
from tests.tools.bench.routes import Routes

ADDED_COLUMNS = ("clients", "peer", "first peer's p50", "own p50", "added", "least", "most")

Table = tuple[Sequence[str], list[list[str]]]
Tables = dict[str, Table]


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench", description=__doc__)
    parser.add_argument("--scenario", choices=[*RUNNERS], default="load")
    parser.add_argument("--peers", default="bare,serve-llm,manta", help="comma-separated; ratios are to the first")
    parser.add_argument("--clients", default="", help="comma-separated numbers of clients")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mode", default="", help="stream, plain or both, comma-separated")
    parser.add_argument("--prompts", default="", help="short, long or both, comma-separated")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of requests")
    parser.add_argument("--streams", type=int, default=1000, help="open-streams: how many")
    parser.add_argument("--hold", type=float, default=60.0, help="of scenarios with a time: for how many seconds")
    parser.add_argument("--rate", type=float, default=4.0, help="beside-batch, fairness: requests a second")
    parser.add_argument("--prompt-tokens", type=int, default=1_000_000, help="long-context: of the long prompt")
    parser.add_argument("--config", type=Path, help="the Serve config whose first model all peers serve")
    parser.add_argument("--restart", action="store_true", help="run one peer at a time, started again each round")
    parser.add_argument("--title", default="", help="heading of the record")
    parser.add_argument("--note", action="append", default=[], help="a line for the record")
    parser.add_argument("--no-record", action="store_true", help="print only, keep nothing")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Measure what the command line asks for; returns the exit status."""
    options = parse_arguments(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    raise_file_limit()
    notes = list(options.note)
    default = "configs/long_context.yaml" if options.scenario == "long-context" else "configs/bench.yaml"
    model = read_model(options.config or ROOT / default)
    if options.scenario == "fairness":  # Fewer places than streams.
        model = dataclasses.replace(model, engine=model.engine | {"max_num_seqs": PLACES})
    specs = [parse_spec(text) for text in options.peers.split(",")]
    with work_directory() as directory, Lineup(specs, directory, model, console, options.restart) as lineup:
        tables, records = RUNNERS[options.scenario](lineup, options, console)
    notes += remarks(tables)
    for title, (columns, rows) in tables.items():
        print_table(title, columns, rows, console)
    for note in notes:
        console.print(f"note: {note}", style="yellow")
    if not options.no_record:
        sections = {title: to_markdown(columns, rows) for title, (columns, rows) in tables.items()}
        command = "python -m tests.tools.bench " + shlex.join(arguments)
        path = keep(options.title or options.scenario, describe_machine(), command, sections, records, notes)
        console.print(f"kept in {path.relative_to(ROOT)}")
    return 0


def raise_file_limit() -> None:
    """Allow this process, and the servers that it starts, as many open files as the system does."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def work_directory() -> Iterator[Path]:
    """A directory for logs and state, kept only after a failure. Its path is short: sockets live below it."""
    directory = Path(tempfile.mkdtemp(prefix="mb", dir="/tmp"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def remarks(tables: Tables) -> list[str]:
    """Return what a reader should know before believing the tables."""
    cells = [cell for _, rows in tables.values() for row in rows for cell in row]
    if not any(cell.endswith("(!)") for cell in cells):
        return []
    return [
        f"(!) marks rounds that lie more than {NOISY_SPREAD:.0%} apart, and loads beside which other programs took "
        f"more than {NOISY_CORES} cores: read those ratios as rough"
    ]


def run_comparison(lineup: Lineup, options: argparse.Namespace, console: Console) -> tuple[Tables, object]:
    """Scenario `load`: every peer under every kind of load."""
    plan = plan_of(options, clients="1,16,64", modes="stream,plain", prompts="short,long")
    results = run_load(lineup, plan, console)
    title, rows = process_rows(results)
    tables: Tables = {name: (COLUMNS, lines) for name, lines in tables_of(results).items()}
    return tables | {title: (PROCESS_COLUMNS, rows)}, to_records(results)


def run_routes(lineup: Lineup, options: argparse.Namespace, console: Console) -> tuple[Tables, object]:
    """Scenario `responses`: the first peer's responses against its chat completions."""
    results = run_load(Routes(lineup), plan_of(options, clients="16,64", modes="stream", prompts="short"), console)
    return {name: (COLUMNS, lines) for name, lines in tables_of(results).items()}, to_records(results)


def run_added_ttft(lineup: Lineup, options: argparse.Namespace, console: Console) -> tuple[Tables, object]:
    """Scenario `ttft-added`: how much later than the first peer's the first text comes, round by round."""
    results = run_load(lineup, plan_of(options, clients="1,16", modes="stream", prompts="short"), console)
    return {"time to first text, ms": (ADDED_COLUMNS, added_ttft_rows(results))}, to_records(results)


def plan_of(options: argparse.Namespace, clients: str, modes: str, prompts: str) -> Plan:
    """Return what to measure: what the command line says, the given where it says nothing."""
    return Plan(
        clients=tuple(map(int, (options.clients or clients).split(","))),
        rounds=options.rounds,
        modes=tuple((options.mode or modes).split(",")),
        prompts=tuple((options.prompts or prompts).split(",")),
        scale=options.scale,
    )


def run_open_streams(lineup: Lineup, options: argparse.Namespace, console: Console) -> tuple[Tables, object]:
    """Scenario `open-streams`: many streams held open for a while."""
    records = {}
    for label in lineup.labels:
        outcome = hold_streams(lineup.use(label), options.streams, options.hold)
        records[label] = dataclasses.asdict(outcome)
        console.print(f"{label}: {outcome}", style="dim")
    title = f"{options.streams} streams held for {options.hold:.0f} s"
    return {title: columns_and_rows(records)}, records


def run_beside_long(lineup: Lineup, options: argparse.Namespace, console: Console) -> tuple[Tables, object]:
    """Scenario `long-context`: short requests beside a very long prompt."""
    clients = int(options.clients or 8)
    records = {}
    for label in lineup.labels:
        outcome = run_long_context(lineup.use(label), options.prompt_tokens, clients)
        records[label] = dataclasses.asdict(outcome)
        console.print(f"{label}: {outcome}", style="dim")
    title = f"{clients} clients with short prompts beside one of {options.prompt_tokens:,} tokens"
    return {title: columns_and_rows(records)}, records


def run_interactive_beside_batch(
    lineup: Lineup, options: argparse.Namespace, console: Console
) -> tuple[Tables, object]:
    """Scenario `beside-batch`: interactive requests alone and beside a batch."""
    title = f"{options.rate:g} interactive requests a second, alone and beside a batch"
    return run_sides(
        lineup, console, title, lambda peer: run_beside_batch(peer, options.rate, options.hold, options.rounds)
    )


def run_fairness(lineup: Lineup, options: argparse.Namespace, console: Console) -> tuple[Tables, object]:
    """Scenario `fairness`: one account's requests beside the flood of another."""
    streams = int(options.clients or 4 * PLACES)
    title = f"{options.rate:g} requests a second, alone and beside {streams} streams of another account"
    return run_sides(
        lineup, console, title, lambda peer: run_fair_shares(peer, options.rate, options.hold, options.rounds, streams)
    )


def run_sides(
    lineup: Lineup, console: Console, title: str, measure: Callable[[Peer], BesideBatch | FairShares]
) -> tuple[Tables, object]:
    """Measure each peer alone and beside something else: a table for each."""
    tables: Tables = {}
    records = {}
    for label in lineup.labels:
        outcome = measure(lineup.use(label))
        records[label] = dataclasses.asdict(outcome)
        console.print(f"{label}: {outcome}", style="dim")
        rows = [[name, *map(show_any, figures)] for name, *figures in outcome.rows()]
        tables[f"{label}: {title}"] = (["figure", "alone", "beside", "beside / alone"], rows)
    return tables, records


def run_code_interpreter(lineup: Lineup, options: argparse.Namespace, console: Console) -> tuple[Tables, object]:
    """Scenario `code-interpreter`: how soon code runs, warm and cold; needs no peer."""
    rows = code_interpreter.run(max(5, options.rounds))
    return {"how soon code runs": (code_interpreter.COLUMNS, rows)}, rows


def run_file_search(lineup: Lineup, options: argparse.Namespace, console: Console) -> tuple[Tables, object]:
    """Scenario `file-search`: how quickly vector stores are filled and searched, and how well; needs no peer."""
    rows = file_search.run(max(3, options.rounds))
    return {"vector stores": (file_search.COLUMNS, rows)}, rows


def run_tools(lineup: Lineup, options: argparse.Namespace, console: Console) -> tuple[Tables, object]:
    """Scenario `tools`: what the service's own tools take, and what they add where none is called; needs no peer."""
    from tests.tools.bench import tools  # It loads much that the other scenarios need not.

    rows = tools.run(max(5, options.rounds), options.scale)
    return {"the service's own tools": (tools.COLUMNS, rows)}, rows


def run_usage(lineup: Lineup, options: argparse.Namespace, console: Console) -> tuple[Tables, object]:
    """Scenario `usage`: how quickly a year of requests is read over the routes of usage; needs no peer."""
    from tests.tools.bench import usage

    rows = usage.run(max(20, options.rounds), options.scale)
    return {f"usage of {options.scale * usage.NUM_REQUESTS:,.0f} requests in a year": (usage.COLUMNS, rows)}, rows


def columns_and_rows(records: dict[str, dict[str, object]]) -> Table:
    """Return a table with a row per figure and a column per peer."""
    names = next(iter(records.values()))
    rows = [[name, *(show_any(record[name]) for record in records.values())] for name in names]
    return ["figure", *records], rows


def show_any(value: object) -> str:
    """Return a figure for a table."""
    return show(value, 2) if isinstance(value, float) else "-" if value is None else str(value)


RUNNERS: dict[str, Callable[[Lineup, argparse.Namespace, Console], tuple[Tables, object]]] = {
    "load": run_comparison,
    "ttft-added": run_added_ttft,
    "responses": run_routes,
    "open-streams": run_open_streams,
    "long-context": run_beside_long,
    "beside-batch": run_interactive_beside_batch,
    "fairness": run_fairness,
    "code-interpreter": run_code_interpreter,
    "file-search": run_file_search,
    "tools": run_tools,
    "usage": run_usage,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
