"""Checks Serve files: `manta config check`, `manta doctor` and `manta serve` say the same of a file."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from deployments.config import ConfigError
from serve_app.checks.document import Document, Place, read_document
from serve_app.checks.rules import ALL, Rule
from serve_app.checks.sentences import Fault
from serve_app.checks.shapes import ARGS, IMPORT_PATH
from serve_app.config import ServiceConfig


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, with what to do if it failed."""

    state: Literal["ok", "warning", "fault"]
    text: str


@dataclass(frozen=True, slots=True)
class Remark(Finding):
    """What is wrong with a Serve file; `setting` is the way to it, `line` counts from 1."""

    file: str
    line: int
    setting: str
    message: str


def check_file(path: Path, rules: Sequence[Rule] = ALL) -> list[Finding]:
    """Return what is wrong with a Serve file, in the order of its lines; nothing if it can be deployed."""
    try:
        document = read_document(path)
    except ConfigError as error:
        return [Finding("fault", str(error))]
    return list(_check(document, rules))


def read_file(path: Path, rules: Sequence[Rule] = ALL) -> tuple[dict[str, Any], ServiceConfig]:
    """Return a Serve file, and the settings of Manta's application in it.

    Raises:
        ConfigError: it cannot be deployed; the message has a line for each fault.
    """
    document = read_document(path)
    faults = [remark.text for remark in _check(document, rules) if remark.state == "fault"]
    if faults:
        raise ConfigError("\n".join(faults))
    applications = document.content["applications"]
    (args,) = [one["args"] for one in applications if one["import_path"] == IMPORT_PATH][:1]
    return document.content, ServiceConfig.model_validate(args)


def _check(document: Document, rules: Iterable[Rule]) -> list[Remark]:
    found = dict.fromkeys(fault for rule in rules for fault in rule(document))
    faults = [fault for fault in found if not _is_consequence(document, fault, found)]
    return sorted((remark_on(document, fault) for fault in faults), key=lambda remark: remark.line)


def _is_consequence(document: Document, fault: Fault, found: Iterable[Fault]) -> bool:
    """Return whether a setting is only missing because its name is misspelt, here or in a section below."""
    if not fault.place or fault.name is not None or any(document.find(fault.place)):
        return False
    above, missing = fault.place[:-1], fault.place[-1]
    return any(other.meant == missing and other.place[: len(above)] == above for other in found)


def remark_on(document: Document, fault: Fault) -> Remark:
    """Return a fault with its line, and the way to it in people's words."""
    line = document.line_of(fault.place if fault.name is None else (*fault.place, fault.name))
    setting = _way_to(document, fault.place)
    where = f"{document.path}:{line}"
    text = f"{where}: {setting}: {fault.message}" if setting else f"{where}: {fault.message}"
    state: Literal["warning", "fault"] = "fault" if fault.is_certain else "warning"
    return Remark(state, text, str(document.path), line, setting, fault.message)


def _way_to(document: Document, place: Place) -> str:
    """Return a place in people's words: without the parts that every file has, and with the id of the model."""
    name = None
    shown = ""
    for number, part in enumerate(place):
        shown += f"[{part}]" if isinstance(part, int) else f".{part}" if shown else str(part)
        if isinstance(part, int):
            found = [value for key in ("id", "name") for _, value in document.find((*place[: number + 1], key))]
            name = found[0] if found else name
        if place[: number + 1] == ("applications", 0, "args") and len(place) > len(ARGS):
            shown, name = "", None
    return f"{shown} ({name})" if name else shown
