"""What a test run starts that is costly, counted over all its processes and printed at its end.

Seconds depend on the machine; these numbers don't. `MOST` bounds them for the whole of `make test`, whose stages add up
in the file that `MANTA_TEST_STARTS` names.
"""

import json
import os
import sys
from collections import Counter
from pathlib import Path
from tempfile import gettempdir

VARIABLE = "MANTA_TEST_STARTS"
MOST = {"services": 5, "bare Rays": 1, "engines": 12, "fronts": 25, "PostgreSQL servers": 8}
"""How many of each `make test` may start."""


def started(kind: str, number: int = 1) -> None:
    """Count `number` things of a kind of `MOST` that a test has just started."""
    assert kind in MOST, kind
    with _path().open("a") as file:
        file.write(json.dumps([kind, number]) + "\n")


def counted() -> Counter[str]:
    """Return how many of each kind the run has started so far."""
    found: Counter[str] = Counter(dict.fromkeys(MOST, 0))
    if _path().exists():
        for line in _path().read_text().splitlines():
            kind, number = json.loads(line)
            found[kind] += number
    return found


def described() -> str:
    """Return the counts as one line."""
    return ", ".join(f"{number} {kind} (at most {MOST[kind]})" for kind, number in counted().items())


def begin() -> None:
    """Begin a count for this process and those that it starts, unless one is under way."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = str(Path(gettempdir()) / f"manta-test-starts-{os.getpid()}")


def end() -> None:
    """Remove the count, if this process began it."""
    if os.environ.get(VARIABLE, "").endswith(f"manta-test-starts-{os.getpid()}"):
        _path().unlink(missing_ok=True)


def main() -> int:
    """Print the counts; with `--check`, return 1 if there are more of a kind than there may be."""
    print(f"Started: {described()}.")
    return "--check" in sys.argv and any(number > MOST[kind] for kind, number in counted().items())


def _path() -> Path:
    return Path(os.environ[VARIABLE])


if __name__ == "__main__":
    sys.exit(main())
