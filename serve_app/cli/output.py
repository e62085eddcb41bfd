"""What commands print: tables for people, JSON for programs, and a message when Ctrl-C or SIGTERM stops them."""

import json
import re
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, date, datetime
from types import FrameType
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_DURATION = re.compile(r"^(\d{1,9})([smhdw])$")


def parse_duration(text: str) -> float:
    """Return the seconds in a duration like 30d, 12h or 90s.

    Raises:
        typer.BadParameter: it is not a duration.
    """
    match = _DURATION.match(text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration. Write a number and a unit, like 30d, 12h, 15m or 90s.")
    return float(int(match[1]) * _UNITS_S[match[2]])


def print_json(value: Any) -> None:
    """Print dataclasses, or lists of them, as JSON."""
    typer.echo(json.dumps(_plain(value), indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], numeric: Iterable[str] = ()) -> None:
    """Print a table; outside a terminal nothing is cut off."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=240)
    table = Table(box=None, header_style="bold", pad_edge=False)
    right = set(numeric)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(render(value) for value in row))
    console.print(table, markup=False)


def render(value: object) -> str:
    """Return the text of a cell: numbers with separators, None as a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in value)
    return str(value)


def render_time(seconds: float | None) -> str:
    """Return a Unix time as UTC to the minute."""
    return "-" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.isoformat() if isinstance(value, date) else value


class _Stopped(BaseException):
    """The command received a signal to stop."""

    def __init__(self, number: int) -> None:
        self.number = number


class StopMessage:
    """The message for a command that is stopped; the command keeps it up to date."""

    def __init__(self, message: str) -> None:
        self.message = message


@contextmanager
def explain_stop(message: str) -> Iterator[StopMessage]:
    """Context manager that lets a signal end the command with a message, and with status 130 or 143.

    A second signal ends it at once.
    """
    stop = StopMessage(message)
    try:
        with _signals_raised():
            yield stop
    except _Stopped as stopped:
        typer.echo(f"\n{stop.message}", err=True)
        raise typer.Exit(128 + stopped.number) from None


@contextmanager
def _signals_raised() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # Signals go to the main thread alone.
        yield
        return
    before = {number: signal.signal(number, _stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    raise _Stopped(number)
