"""Ctrl-C and SIGTERM end a command with a message: what was begun, what goes on without it, what to do next."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Stopped(BaseException):
    """The command was asked to stop, which is no failure."""

    def __init__(self, number: int) -> None:
        self.number = number


class Standing:
    """The message of a command that is stopped now; the command changes it as it goes."""

    def __init__(self, message: str) -> None:
        self.message = message


@contextmanager
def explain_stop(message: str) -> Iterator[Standing]:
    """Let a signal end the command with the output so far, and with the status that shells expect: 130 or 143.

    A second signal ends it at once.
    """
    standing = Standing(message)
    try:
        with _signals_raised():
            yield standing
    except _Stopped as stopped:
        typer.echo(f"\n{standing.message}", err=True)
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
