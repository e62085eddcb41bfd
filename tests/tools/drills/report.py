"""The table of a run, and its record: `results/DATE.json` has every verdict, `results/DATE.md` the table."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from tests.tools.bench.machine import describe_machine
from tests.tools.drills.rounds import Verdict
from tests.tools.drills.table import UNDISTURBED

RESULTS = Path(__file__).parent / "results"
COLUMNS = (
    "killed",
    "setting",
    "rounds",
    "requests",
    "failed",
    "allowed",
    "slowest, undisturbed",
    "back after",
    "promise",
)


def render_table(verdicts: Iterable[Verdict], left_out: Sequence[tuple[str, str]] = ()) -> str:
    """Return the rounds as a Markdown table, one row a drill; `left_out` are drills that were not run, with why."""
    lines = [render_row(rounds) for _, rounds in group(verdicts)]
    lines += [f"| {name} | | 0 | | | | | | **not run**: {why} |" for name, why in left_out]
    return render_head(COLUMNS) + "\n".join(lines) + "\n"


def render_head(columns: Sequence[str]) -> str:
    """Return the first two lines of a Markdown table."""
    return f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"


def group(verdicts: Iterable[Verdict]) -> Iterable[tuple[tuple[str, str], list[Verdict]]]:
    """Return the rounds of each drill, with its setting and its name."""
    rows: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        rows[verdict.setting, verdict.name].append(verdict)
    return rows.items()


def render_row(rounds: list[Verdict]) -> str:
    """Return the rounds of a drill as a row."""
    first = rounds[0]
    slowest = max((max(one.longest_wait_s.values(), default=0.0) for one in rounds), default=0.0)
    usual = max((max(one.undisturbed_wait_s.values(), default=0.0) for one in rounds), default=0.0)
    back = [one.back_s for one in rounds if one.back_s is not None]
    cells = [
        first.name,
        first.setting,
        str(len(rounds)),
        str(sum(one.requests for one in rounds)),
        _list(one.failed for one in rounds),
        _list(one.excused for one in rounds),
        f"{slowest:.1f} s, {usual:.1f} s",
        f"{median(back):.1f} s" if back else "",
        _render_promise(rounds),
    ]
    return f"| {' | '.join(cells)} |"


def _render_promise(rounds: list[Verdict]) -> str:
    """Return whether a promise was kept, and if not, how it was broken."""
    broken = [one for one in rounds if not one.is_green]
    if not broken:
        return "kept" if rounds[0].is_held or rounds[0].name == UNDISTURBED else "kept (listed as not held)"
    wrongs: dict[str, int] = defaultdict(int)
    for verdict in broken:
        for wrong, num in verdict.wrongs.items():
            wrongs[wrong] += num
    word = "**broken**" if rounds[0].is_held else "not held yet"
    return f"{word} in {len(broken)} of {len(rounds)}: " + ", ".join(f"{wrong} {num}" for wrong, num in wrongs.items())


def _list(numbers: Iterable[int]) -> str:
    found = list(numbers)
    return str(found[0]) if len({*found}) == 1 else ", ".join(map(str, found))


def write_results(record: Path, verdicts: Sequence[Verdict], command: str, left_out: Sequence[tuple[str, str]]) -> None:
    """Write what a run has played so far: every verdict into `record`.json, the table into `record`.md."""
    record.parent.mkdir(parents=True, exist_ok=True)
    machine = describe_machine()
    rounds = [asdict(one) for one in verdicts]
    text = json.dumps({"command": command, "machine": machine, "left_out": left_out, "rounds": rounds}, indent=1)
    record.with_suffix(".json").write_text(text + "\n")
    about = ", ".join(f"{name} {value}" for name, value in machine.items())
    record.with_suffix(".md").write_text(f"`{command}`\n\n{about}\n\n{render_table(verdicts, left_out)}")


def describe_round(verdict: Verdict) -> str:
    """Return a round in some lines, to watch the run by."""
    waits = ", ".join(f"{kind} {wait:.2f} s" for kind, wait in sorted(verdict.longest_wait_s.items()))
    failed = f"{verdict.requests} requests, {verdict.failed} failed, {verdict.excused} of them allowed"
    after = f"back after {verdict.back_s}, at rest after {verdict.rest_s}"
    lines = [f"{verdict.name} ({verdict.setting}): {failed}; slowest {waits}; {after}"]
    lines += [f"    {num} x {way}" for way, num in verdict.ways_to_fail.items()]
    lines += [f"  ! {fault}" for fault in verdict.faults]
    return "\n".join(lines)
