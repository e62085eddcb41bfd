"""Regular expressions in the EBNF that the engine's compiler reads."""

import re

from deployments import characters
from deployments.characters import Ranges
from deployments.ebnf import class_of, text_of

_TOKEN = re.compile(
    r"""(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])
    | (?P<open>\((?:\?:|\?P?<\w+>)?)(?P<assertion>\?)?
    | (?P<repeated>(?:[*+?]|\{(?:\d+(?:,\d*)?|,\d+)\})\??)
    | (?P<mark>[)|])
    | (?P<dot>\.)
    | (?P<escape>\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.))
    | (?P<edge>[\^$])
    | (?P<letter>.)""",
    re.X | re.S,
)
_ONE = r"(\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)|.)"
_MEMBER = re.compile(f"{_ONE}(?:-{_ONE})?", re.S)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
# The characters that a class has wherever it is read: dialects differ in what they take from beyond ASCII.
_CLASSES: dict[str, Ranges] = {
    "d": characters.DIGITS,
    "D": characters.intersection(characters.ASCII, characters.complement(characters.DIGITS)),
    "s": characters.SURE_SPACES,
    "S": characters.complement(characters.SPACES),
    "w": characters.WORD,
    "W": characters.intersection(characters.ASCII, characters.complement(characters.WORD)),
}


class LarkRefused(ValueError):
    """The grammar is not valid, or uses something that EBNF lacks; the message names it."""


def read_regex(pattern: str) -> str:
    """Return a regular expression, which matches whole texts, as the body of a rule.

    Raises:
        LarkRefused: it uses something that EBNF lacks.
    """
    parts: list[str] = []
    for match in _TOKEN.finditer(pattern):
        kind, text = str(match.lastgroup), match.group()
        if kind in ("assertion", "edge"):
            raise _refused(text)
        if kind == "class":
            parts.append(class_of(_read_class(text)))
        elif kind == "open":
            parts.append("(")
        elif kind == "repeated":
            parts.append(_repeated(text))
        elif kind == "mark":
            parts.append(text)
        elif kind == "dot":
            parts.append(class_of(characters.complement(characters.of("\n"))))
        elif kind == "escape":
            known = _CLASSES.get(text[1])
            parts.append(text_of(_escaped(text)) if known is None else class_of(known))
        else:
            parts.append(text_of(text))
    for index, part in enumerate(parts):
        if part in ("|", "(") and parts[index + 1 : index + 2] in ([], ["|"], [")"]):
            parts[index] += ' ""'  # An empty alternative.
    return " ".join((['""'] if not parts or parts[0].startswith("|") else []) + parts)


def _repeated(text: str) -> str:
    """Return how often a part is repeated. Lazy or not, the texts are the same."""
    if text[0] != "{":
        return text[0]
    least, comma, most = text[1:].rstrip("?}").partition(",")
    return f"{{{least or 0},{most if comma else least}}}"


def _refused(text: str) -> LarkRefused:
    return LarkRefused(f"a regular expression uses '{text[:64]}', which is not supported")


def _escaped(text: str) -> str:
    """Return the character that an escape sequence stands for."""
    letter = text[1]
    if len(text) > 2:
        code = int(text[2:], 16)
        if not characters.intersection(((code, code),), characters.TEXT):
            raise _refused(text)
        return chr(code)
    if letter in _CONTROLS:
        return _CONTROLS[letter]
    if letter.isalnum():
        raise _refused(text)
    return letter


def _read_class(text: str) -> Ranges:
    is_negated = text.startswith("[^")
    held: list[tuple[int, int]] = []
    kinds: set[str] = set()
    for ends in _MEMBER.findall(text[2 if is_negated else 1 : -1]):
        codes = [ord(_escaped(end) if len(end) > 1 else end) for end in ends if end and not _is_kind(end)]
        kinds.update(end[1] for end in ends if _is_kind(end))
        if ends[1] and any(map(_is_kind, ends)):  # After a class, the dash is a dash.
            held += [(code, code) for code in [*codes, ord("-")]]
        elif codes and codes[0] <= codes[-1]:
            held.append((codes[0], codes[-1]))
        elif codes:
            raise _refused("-".join(ends))
    if any(kind.swapcase() in kinds for kind in kinds):
        held.append((0, characters.LAST))  # As in "[\s\S]": each character is in the one or in the other.
    for kind in kinds:
        held += characters.complement(_CLASSES[kind.swapcase()]) if is_negated else _CLASSES[kind]
    ranges = characters.union(held)
    ranges = characters.intersection(characters.complement(ranges) if is_negated else ranges, characters.TEXT)
    if not ranges:
        raise LarkRefused(f"'{text[:64]}' matches no character")
    return ranges


def _is_kind(end: str) -> bool:
    """Return whether an end of a range is a class of its own, such as that of digits."""
    return len(end) == 2 and end[0] == "\\" and end[1] in _CLASSES
