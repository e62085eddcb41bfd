"""Puts runs into the page of drills: `python -m tests.tools.drills.page tests/tools/drills/results/RUN.json...`.

Of a row that several runs have, the rounds of all runs of the last commit count. Rows of the page that none of them has
stay as they are.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.tools.drills.report import COLUMNS, group, render_head, render_row
from tests.tools.drills.rounds import Verdict
from tests.tools.drills.table import DRILLS, UNDISTURBED

PAGE = Path(__file__).parents[3] / "docs" / "measurements" / "drills.md"
BEGIN = "<!-- The table of runs: python -m tests.tools.drills.page RUN.json... -->\n"
END = "<!-- The end of the table. -->\n"
_HEAD = render_head((*COLUMNS, "run"))

Key = tuple[str, str]
"""A row's setting and what is killed in it."""


def fill(text: str, records: Sequence[Mapping[str, Any]]) -> str:
    """Return the page with the rows of these runs, each with its date and commit, and the last run's machine."""
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    rows, rounds_of, commit_of = read_rows(table), dict[Key, list[Verdict]](), dict[Key, str]()
    for record in sorted(records, key=lambda one: str(one["machine"]["date"])):
        machine = record["machine"]
        for key, rounds in group(_as_listed(Verdict(**one)) for one in record["rounds"]):
            if commit_of.get(key) != machine["commit"]:
                commit_of[key], rounds_of[key] = machine["commit"], []
            rounds_of[key] += rounds
            rows[key] = f"{render_row(rounds_of[key])} {machine['date'][:16]}, {machine['commit']} |"
    lines = "\n".join(rows[key] for key in sorted(rows, key=_place))
    return f"{before}{BEGIN}\n{_HEAD}{lines}\n\nOn {machine['cpu']}, {machine['memory']}.\n\n{END}{after}"


def _as_listed(verdict: Verdict) -> Verdict:
    """Return a verdict that says whether its row is held today; the run may be older."""
    today = [one.is_held for one in DRILLS if (one.setting, one.name) == (verdict.setting, verdict.name)]
    return replace(verdict, is_held=today[0]) if today else verdict


def read_rows(table: str) -> dict[Key, str]:
    """Return the rows that a page has."""
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    return {(cells[2], cells[1]): line for line in lines if (cells := [cell.strip() for cell in line.split("|")])}


def _place(key: Key) -> tuple[int, int]:
    """Return where a row stands: as in the list of drills, with each setting's undisturbed rounds before the others."""
    settings = list(dict.fromkeys(drill.setting for drill in DRILLS))
    names = [(drill.setting, drill.name) for drill in DRILLS]
    setting, name = key
    number = names.index(key) if key in names else len(names)
    return settings.index(setting) if setting in settings else len(settings), -1 if name == UNDISTURBED else number


def main(paths: Sequence[str]) -> None:
    """Write the page anew."""
    PAGE.write_text(fill(PAGE.read_text(), [json.loads(Path(path).read_text()) for path in paths]))


if __name__ == "__main__":
    main(sys.argv[1:])
