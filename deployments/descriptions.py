"""What the docstrings of models say of their fields: for schemas, and for the pages of the reference."""

import inspect
import re

from pydantic import BaseModel

_VERBATIM = re.compile(r"vLLM|\S*://")  # What begins a meaning and has its own spelling.


def summary_of(model: type[BaseModel]) -> str:
    """Return what a model is, in paragraphs, without its fields."""
    paragraphs = (inspect.getdoc(model) or "").split("\n\nArgs:")[0].split("\n\n")
    return "\n\n".join(_in_yaml(paragraph.replace("\n", " ")) for paragraph in paragraphs)


def meanings_of(model: type[BaseModel]) -> dict[str, str]:
    """Return the meaning of each field of a model that its docstring, or one of its parents', describes."""
    return {name: meaning for kind in reversed(model.__mro__) for name, meaning in _meanings_in(kind).items()}


def _meanings_in(kind: type) -> dict[str, str]:
    """Return what the `Args:` of a docstring say, by name; one entry may name several."""
    _, _, listed = inspect.cleandoc(kind.__doc__ or "").partition("Args:\n")
    entries: list[list[str]] = []
    for line in listed.splitlines():
        if not line.strip():
            break
        if line.startswith("    ") and not line.startswith("     "):
            entries.append([line.strip()])
        elif entries:
            entries[-1].append(line.strip())
    meanings: dict[str, str] = {}
    for entry in entries:
        names, _, meaning = " ".join(entry).partition(": ")
        meanings |= {
            name.strip(): _in_yaml(meaning if _VERBATIM.match(meaning) else meaning[:1].upper() + meaning[1:])
            for name in names.split(",")
        }
    return meanings


def _in_yaml(text: str) -> str:
    """Return a docstring's text with the names that YAML has for values."""
    return re.sub(r"\bNone\b", "`null`", text)
