"""Puts the table of a run into the page for operators: `python -m tests.drills.page tests/drills/results/RUN.json`."""

import json
import sys
from pathlib import Path

from tests.drills.report import render_table
from tests.drills.rounds import Verdict

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "failures.md"
BEGIN, END = "<!-- The table of a run: python -m tests.drills.page RUN.json -->\n", "<!-- The end of the table. -->\n"


def fill(text: str, record: dict[str, object]) -> str:
    """Return the page with the table of a run, its command, its date and its machine."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    rounds, left_out, machine = record["rounds"], record["left_out"], record["machine"]
    assert isinstance(rounds, list)
    assert isinstance(left_out, list)
    assert isinstance(machine, dict)
    table = render_table([Verdict(**one) for one in rounds], [(name, why) for name, why in left_out])
    taken = (
        f"`{record['command']}`, {machine['date']}, commit {machine['commit']}, {machine['cpu']}, {machine['memory']}"
    )
    return f"{before}{BEGIN}\n{table}\n{taken}.\n\n{END}{after}"


def main(path: str) -> None:
    """Write the page anew."""
    PAGE.write_text(fill(PAGE.read_text(), json.loads(Path(path).read_text())))


if __name__ == "__main__":
    main(sys.argv[1])
