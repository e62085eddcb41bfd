"""Puts runs into the page of two regions: `python -m tests.tools.drills.regions.page RUN.json...`.

Of a row that several runs have, the last run wins; the year's arithmetic is made anew from the rows of these runs.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.tools.drills.regions.report import COLUMNS, cells_of
from tests.tools.drills.regions.rounds import RegionRound
from tests.tools.drills.regions.table import REGION_DRILLS
from tests.tools.drills.regions.year import add_up, render_year
from tests.tools.drills.report import render_head

PAGE = Path(__file__).parents[4] / "docs" / "measurements" / "availability.md"
MARKS = {
    "table": (
        "<!-- The table of runs: python -m tests.tools.drills.regions.page RUN.json... -->\n",
        "<!-- The end of the table. -->\n",
    ),
    "year": ("<!-- The year, from the same runs. -->\n", "<!-- The end of the year. -->\n"),
}


def fill(text: str, records: Sequence[Mapping[str, Any]]) -> str:
    """Return the page with the rows of these runs, and with the year that follows from them."""
    rows: dict[str, tuple[RegionRound, str]] = {}
    machine: Mapping[str, Any] = {}
    for record in sorted(records, key=lambda one: str(one["machine"]["date"])):
        machine = record["machine"]
        run = f"{machine['date'][:16]}, {machine['commit']}"
        rows |= {one["name"]: (RegionRound(**one), run) for one in record["rounds"]}
    names = [drill.name for drill in REGION_DRILLS if drill.name in rows]
    lines = [f"| {' | '.join([*cells_of(rows[name][0]), rows[name][1]])} |\n" for name in names]
    about = f"\nOn {machine['cpu']}, {machine['memory']}.\n\n"
    text = put(text, "table", f"\n{render_head((*COLUMNS, 'run'))}{''.join(lines)}{about}")
    lost = {name: (one.served_lost_s, one.stored_lost_s) for name, (one, _) in rows.items()}
    return put(text, "year", f"\n{render_year(add_up(lost))}\n")


def put(text: str, name: str, filling: str) -> str:
    """Return the page with something else between two marks."""
    begin, end = MARKS[name]
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{filling}{end}{after}"


def main(paths: Sequence[str]) -> None:
    """Write the page anew."""
    PAGE.write_text(fill(PAGE.read_text(), [json.loads(Path(path).read_text()) for path in paths]))


if __name__ == "__main__":
    main(sys.argv[1:])
