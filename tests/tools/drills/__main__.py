"""`make drills`: runs the drills of `table.py`, prints the table. What was played so far is in `results/`.

    python -m tests.tools.drills [--rounds 5] [--only PATTERN] [--quick] [--list]
    python -m tests.tools.drills --chaos 30 --lines 20000
    python -m tests.tools.drills --steady 60
    python -m tests.tools.drills --part regions [--quick]

Exits with 1 if a promise was broken that the table lists as held.
"""

import argparse
import asyncio
import re
import shutil
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count, groupby
from pathlib import Path
from typing import TypeVar

from tests.tools.drills import missing, versions
from tests.tools.drills.apart import build_bridge, is_apart, run_apart
from tests.tools.drills.chaos import run_chaos
from tests.tools.drills.cluster import ROOT, Cluster
from tests.tools.drills.regions import run as regions
from tests.tools.drills.report import RESULTS, describe_round, render_table, write_results
from tests.tools.drills.rounds import Played, Stage, Verdict, verdict_of
from tests.tools.drills.steady import render_trends, run_steady
from tests.tools.drills.stores import redis_program
from tests.tools.drills.table import DRILLS, UNDISTURBED, Drill, undisturbed

T = TypeVar("T")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.drills", description=__doc__)
    parser.add_argument("--rounds", type=int, help="how often each drill is played: five times, a quick one once")
    parser.add_argument("--only", metavar="PATTERN", default="", help="drills whose line in --list matches this")
    parser.add_argument("--quick", action="store_true", help="the quick drills alone, as `make test-all` plays them")
    parser.add_argument("--chaos", type=float, metavar="MINUTES", help="kill something at random every ten seconds")
    parser.add_argument("--lines", type=int, default=20_000, help="the lines of the batch that runs meanwhile")
    parser.add_argument("--seed", type=int, default=1, help="of what is killed")
    parser.add_argument("--steady", type=float, metavar="MINUTES", help="watch the memory of every process")
    parser.add_argument("--list", action="store_true", help="print the drills, and run none")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs of the nodes")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder that the table is written into")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.record = options.results / time.strftime("%Y-%m-%d-%H-%M", time.gmtime())
    options.command = f"make drills ARGS='{' '.join(arguments)}'"
    return options


def choose(options: argparse.Namespace) -> list[Drill]:
    """Return the drills that are asked for, those of a cluster beside each other."""
    chosen = [
        drill
        for drill in DRILLS
        if (drill.is_quick or not options.quick)
        and re.search(options.only, f"{drill.name} ({drill.setting})", re.IGNORECASE)
    ]
    return sorted(chosen, key=_cluster_of)


def _cluster_of(drill: Drill) -> tuple[str, int, bool]:
    return drill.engine, drill.num_workers, drill.needs_former


async def play_all(drills: Sequence[Drill], rounds: int, folder: Path, keep: Callable[[Played], None]) -> None:
    """Play every drill `rounds` times, in turns, each cluster after the other; keeps each round once it is played."""
    for (engine, num_workers, needs_former), of_cluster in groupby(drills, _cluster_of):
        turns = deque(_turns(list(of_cluster), rounds))
        code = versions.unpack(folder / "code") if needs_former else ROOT
        for number in count(1):
            if not turns:
                break
            name = "former" if needs_former else engine
            cluster = Cluster(folder / f"{name}-{num_workers}-{number}", num_workers, engine, code)
            try:
                await asyncio.to_thread(cluster.start)
                await _play_turns(Stage(cluster), turns, keep)
            finally:
                await asyncio.to_thread(cluster.remove)


async def _play_turns(stage: Stage, turns: deque[Drill], keep: Callable[[Played], None]) -> None:
    """Play the drills until none is left, the service does not come to rest, or it has moved to another version."""
    await stage.warm_up()
    while turns and await stage.is_ready():
        drill = turns.popleft()
        keep(await stage.play(drill))
        if drill.needs_former and drill.name != UNDISTURBED:
            return


def _turns(drills: Sequence[Drill], rounds: int) -> Iterator[Drill]:
    first = drills[0]
    for _ in range(rounds):
        yield undisturbed(first.num_workers, first.engine, needs_former=first.needs_former)
        yield from drills


def judge_all(played: Sequence[Played]) -> list[Verdict]:
    """Return the verdict on each round, by the longest waits of all undisturbed rounds in the same setting."""
    waits: dict[str, dict[str, float]] = defaultdict(dict)
    for one in played:
        if one.drill.name == UNDISTURBED:
            baseline = waits[one.drill.setting]
            baseline |= {kind: max(wait, baseline.get(kind, 0.0)) for kind, wait in one.longest_wait_s().items()}
    return [verdict_of(one, waits[one.drill.setting]) for one in played]


async def on_two_workers(folder: Path, work: Callable[[Stage], Awaitable[T]]) -> T:
    """Return what the work on a cluster of a head and two workers returns."""
    cluster = Cluster(folder, 2, "scripted")
    try:
        await asyncio.to_thread(cluster.start)
        return await work(Stage(cluster))
    finally:
        await asyncio.to_thread(cluster.remove)


def run_drills(options: argparse.Namespace, folder: Path) -> int:
    """Run the chosen drills, print the table; return the exit status."""
    drills, left_out = choose(options), []
    if redis_program() is None:
        left_out = [(drill.name, missing.NO_REDIS) for drill in drills if drill.needs_redis]
        drills = [drill for drill in drills if not drill.needs_redis]
    if reason := versions.reason():
        left_out += [(drill.name, reason) for drill in drills if drill.needs_former]
        drills = [drill for drill in drills if not drill.needs_former]
    played: list[Played] = []

    def keep(one: Played) -> None:
        played.append(one)
        verdicts = judge_all(played)
        print(describe_round(verdicts[-1]), flush=True)
        write_results(options.record, verdicts, options.command, left_out)

    try:
        asyncio.run(play_all(drills, options.rounds, folder, keep))
    finally:
        verdicts = judge_all(played)
        print(render_table(verdicts, left_out))
        print(options.record.with_suffix(".md"))
    return int(any(one.is_held and not one.is_green for one in verdicts))


def run_chosen(options: argparse.Namespace, folder: Path) -> int:
    """Run the mode that is asked for; return the exit status."""
    if options.chaos:
        chaos = asyncio.run(
            on_two_workers(folder, lambda stage: run_chaos(stage, options.chaos, options.lines, options.seed))
        )
        print(chaos.render())
        return int(bool(chaos.wrongs) or not chaos.batch.startswith("exact"))
    if options.steady:
        trends = asyncio.run(on_two_workers(folder, lambda stage: run_steady(stage, options.steady)))
        print(render_trends(trends))
        return int(any(trend.is_growing for trend in trends))
    return run_drills(options, folder)


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; return the exit status."""
    if arguments[:2] == ["--part", "regions"]:
        return regions.main(arguments[2:])
    options = parse(arguments)
    if options.list:
        for drill in choose(options):
            print(f"{'held' if drill.is_held else 'not held yet':12}  {drill.name} ({drill.setting})")
        return 0
    if reason := missing.reason():
        print(f"The drills are not run: {reason}")
        return missing.STATUS
    if not is_apart():
        return run_apart(list(arguments))
    build_bridge()
    folder = Path(tempfile.mkdtemp(prefix="drills-", dir="/tmp"))
    try:
        return run_chosen(options, folder)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
