"""Ids from requests, made fit for a query."""

from collections.abc import Iterator, Sequence

MAX_IDS = 400
"""How many ids one statement carries: SQLite and PostgreSQL bound the parameters of a statement."""


def clean_id(text: str) -> str:
    """Return an id from a request as a database takes it: without NUL, and valid UTF-8."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def id_groups(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the ids in groups of at most MAX_IDS, one group for a statement; nothing where there are none."""
    for start in range(0, len(ids), MAX_IDS):
        yield ids[start : start + MAX_IDS]
