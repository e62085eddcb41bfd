"""What commands print: tables for people, JSON for programs, and a message when Ctrl-C or SIGTERM stops them."""

import json
import re
import signal
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, date, datetime
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from serve_app.checks.sentences import SENTENCES

_BETWEEN = 2
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_KINDS = {"str": "TEXT", "int": "NUMBER", "int range": "NUMBER", "float": "NUMBER"}
_OPTIONS = {"operations": "operation", "models": "model", "expires_at": "expires-in"}
"""By the field: the option whose name differs from it."""
_DURATION = re.compile(r"^(\d{1,9})([smhdw])$")

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


class Commands(TyperGroup):
    """A group of commands whose help has whole sentences, and whose help and errors have no words of Python."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None if there is none of this name."""
        command: Any = super().get_command(ctx, cmd_name)
        for parameter in command.params if command is not None else ():
            if parameter.param_type_name == "argument":
                parameter.metavar = parameter.name.upper()
                parameter.display_type_rich = _nothing
            elif parameter.metavar is None and not parameter.is_flag:
                parameter.metavar = _kind_in_words(parameter.display_type(ctx))
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an option with a wrong value is refused as a wrong setting is."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if isinstance(error.__cause__, ValidationError):
                said = _in_words(error.__cause__.errors(include_url=False)[0])
                error.message = f"It {said}." if said.startswith("should") else f"{said}."
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        rows = [(name, _first_sentence(self.commands[name])) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def option_at_fault(error: ValidationError) -> str:
    """Return what is wrong with the first of the options that a value was made from, in a sentence."""
    details = error.errors(include_url=False)[0]
    if not details["loc"]:
        return f"{_in_words(details)}."
    field = str(details["loc"][0])
    return f"--{_OPTIONS.get(field, field.replace('_', '-'))} {_in_words(details)}."


def _in_words(details: ErrorDetails) -> str:
    if details["type"] not in SENTENCES:
        return details["msg"].removesuffix(".")
    return SENTENCES[details["type"]](details.get("ctx", {}), details["input"])


def _kind_in_words(shown: str) -> str | None:
    """Return what stands for an option's value in its help; None for a choice, which shows its values."""
    if "|" in shown:
        return None
    kind = shown.strip("<>").removeprefix("list[").removesuffix("]").lower()
    return _KINDS.get(kind, kind.upper())


def _nothing(ctx: Any) -> None:
    """An argument's name says enough: Typer would add its type in Python's words."""


def _first_sentence(command: Any) -> str:
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return f"{text.partition('. ')[0].removesuffix('.')}."


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: "1 file", "2 files"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


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


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    numeric: Collection[str] = (),
    optional: Sequence[str] = (),
    empty: str = "",
) -> None:
    """Print a table, or the sentence `empty` where there are no rows.

    If it is wider than the terminal, it has none of the columns in `optional` from some point on, and a last line says
    so. Outside a terminal, the width is that in COLUMNS, or 80.
    """
    cells = [[render(value) for value in row] for row in rows]
    if not cells:
        typer.echo(empty or "Nothing.")
        return
    console = Console(highlight=False)
    widths = {
        name: max(len(name), *(len(row[number]) for row in cells)) + _BETWEEN for number, name in enumerate(columns)
    }
    left_out: list[str] = []
    for name in reversed(optional):
        if sum(widths[column] for column in columns if column not in left_out) - _BETWEEN <= console.width:
            break
        left_out.append(name)
    shown = [number for number, name in enumerate(columns) if name not in left_out]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, _BETWEEN, 0, 0))
    for number in shown:
        name = columns[number]
        table.add_column(name, justify="right" if name in numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(row[number] for number in shown))
    console.print(table, markup=False)
    if left_out:
        text = f"Not shown here: {', '.join(reversed(left_out))}. A wider terminal or --json has them."
        console.print(text, markup=False)


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
