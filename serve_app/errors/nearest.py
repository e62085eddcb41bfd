"""Which of the known names was probably meant by a wrong one. The cost is bounded: anyone may send any name."""

import difflib
from collections.abc import Iterable
from itertools import islice

LIKELY = 0.75
"""How alike two names of models, fields or paths are where one was meant; many that have nothing to do are at 0.6."""
_MAX_CHARS = 64
_MAX_NAMES = 32
_MIN_BEGINNING = 3


def closest_to(name: object, known: Iterable[str], at_least: float = 0.6) -> str | None:
    """Return the known name that was probably meant, None if none is close; `at_least` is from 0 to 1, for equal."""
    given = str(name)
    if len(given) > _MAX_CHARS:
        return None
    given = given.lower()
    by_lower = {one.lower(): one for one in known}
    begun = [one for one in by_lower if len(given) >= _MIN_BEGINNING and one.startswith(given)]
    found = difflib.get_close_matches(given, by_lower, n=1, cutoff=at_least) or begun
    return by_lower[found[0]] if found else None


def misspelt(known: str, names: Iterable[str]) -> str | None:
    """Return the first of a client's names that probably stands for a known one that is missing; None without one."""
    among = (name for name in islice(names, _MAX_NAMES) if name != known)
    return next((name for name in among if closest_to(name, (known,), LIKELY) is not None), None)
