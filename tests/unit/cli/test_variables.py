"""The reference lists each environment variable that Manta reads."""

import re
from pathlib import Path

from serve_app.cli.variables import VARIABLES

ROOT = Path(__file__).parents[3]
INTERNAL = {"MANTA_NOTICE", "MANTA_SERVE"}  # Between Manta's own processes.


def test_every_variable_of_manta_is_listed_and_no_other() -> None:
    files = [path for folder in ("serve_app", "deployments", "batch") for path in (ROOT / folder).rglob("*.py")]
    code = "".join(path.read_text() for path in files if path.name != "variables.py")
    read = set(re.findall(r"\bMANTA_[A-Z_]+\b", code)) - INTERNAL
    assert {name for name in VARIABLES if name.startswith("MANTA_")} == read
