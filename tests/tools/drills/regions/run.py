"""`python -m tests.tools.drills --part regions`: plays the drills of two regions and prints the table.

    python -m tests.tools.drills --part regions [--quick] [--only PATTERN] [--rounds 1] [--lines 10000] [--list]

`--quick` has few clients and a short batch, for a small machine. Exits with 1 if a promise was broken that is listed as
held, with 77 where the machine lacks something.
"""

import argparse
import asyncio
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.tools.bench.machine import describe_machine
from tests.tools.drills.apart import build_bridge, is_apart, run_apart
from tests.tools.drills.missing import STATUS, reason
from tests.tools.drills.regions.calls import SMALL, Size
from tests.tools.drills.regions.database import missing
from tests.tools.drills.regions.ground import Ground
from tests.tools.drills.regions.report import describe, render_table
from tests.tools.drills.regions.rounds import RegionRound, RegionStage
from tests.tools.drills.regions.table import REGION_DRILLS, RegionDrill
from tests.tools.drills.report import RESULTS

QUICK_LINES, FULL_LINES = 500, 10_000


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.drills --part regions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few clients, a short batch")
    parser.add_argument("--only", metavar="PATTERN", default="", help="rows whose name matches this")
    parser.add_argument("--rounds", type=int, default=1, help="how often each row is played")
    parser.add_argument("--lines", type=int, help="the lines of the batch that runs meanwhile")
    parser.add_argument("--list", action="store_true", help="print the rows, and play none")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder that the table is written into")
    options = parser.parse_args(arguments)
    options.record = options.results / f"regions-{time.strftime('%Y-%m-%d-%H-%M', time.gmtime())}.json"
    options.machine = describe_machine()  # With the commit that is played, whatever is committed meanwhile.
    options.command = f"make drills ARGS='--part regions {' '.join(arguments)}'"
    return options


def choose(options: argparse.Namespace) -> list[RegionDrill]:
    """Return the rows that are asked for."""
    return [drill for drill in REGION_DRILLS if re.search(options.only, drill.name, re.IGNORECASE)]


async def play_all(options: argparse.Namespace, folder: Path, played: list[RegionRound]) -> None:
    """Play the rows on one ground; adds the rounds to `played`."""
    size = SMALL if options.quick else Size()
    lines = options.lines or (QUICK_LINES if options.quick else FULL_LINES)
    ground = Ground(folder)
    try:
        await asyncio.to_thread(ground.start)
        stage = RegionStage(ground, size, lines)
        for _ in range(options.rounds):
            for drill in choose(options):
                played.append(await stage.play(drill))
                print(describe(played[-1]), flush=True)
                write(options, played)
    finally:
        await asyncio.to_thread(ground.remove)


def write(options: argparse.Namespace, played: Sequence[RegionRound]) -> None:
    """Write down what was played so far."""
    options.record.parent.mkdir(parents=True, exist_ok=True)
    rounds = [asdict(one) for one in played]
    record = {"command": options.command, "machine": options.machine, "rounds": rounds}
    options.record.write_text(json.dumps(record, indent=1) + "\n")


def main(arguments: Sequence[str]) -> int:
    """Play what is asked for; return the exit status."""
    options = parse(arguments)
    if options.list:
        for drill in choose(options):
            print(f"{'held' if drill.is_held else 'not held yet':12}  {drill.name}")
        return 0
    if why := reason() or missing():
        print(f"The drills of two regions are not run: {why}")
        return STATUS
    if not is_apart():
        return run_apart(list(arguments), "tests.tools.drills.regions.run")
    build_bridge()
    folder = Path(tempfile.mkdtemp(prefix="drills-", dir="/tmp"))
    played: list[RegionRound] = []
    try:
        asyncio.run(play_all(options, folder, played))
    finally:
        if played:
            print(render_table(played))
            print(options.record)
        if options.keep:
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return int(any(one.is_held and not one.is_green for one in played))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
