"""A text in the JSON of a call's arguments, read piece by piece while the model writes it.

Whether the JSON is a valid object is known at its end only.
"""

import re

import orjson

_HIGH, _LOW = r"[dD][89abAB][0-9a-fA-F]{2}", r"[dD][c-fC-F][0-9a-fA-F]{2}"
_WHOLE = re.compile(rf'(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{{4}}|\\u{_HIGH}\\u{_LOW})*+')
# The beginning of an escape sequence whose rest may still come; a pair of surrogates is one character.
_BEGUN = re.compile(rf"\\(?:u[0-9a-fA-F]{{0,3}}|u{_HIGH}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?)?")
_INSIDE = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
_BETWEEN = re.compile(r'[^"{}\[\],]++')


class TextMember:
    """Reads a string member of a JSON object from pieces, however these are cut.

    The first string member of that name counts. Invalid JSON ends the text.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pieces: list[str] = []
        self._is_begun = False
        self._has_ended = False
        self._depth = 0
        self._key: str | None = None
        self._is_key_next = True
        self._string: list[str] | None = None
        self._held = ""

    @property
    def text(self) -> str | None:
        """The text so far, None if it has not begun."""
        return "".join(self._pieces) if self._is_begun else None

    def take(self, piece: str) -> str:
        """Return what a piece of the JSON text adds to the text."""
        read, self._held = self._held + piece, ""
        at = 0
        while at < len(read) and not self._has_ended and not self._is_begun:
            at = self._read_string(read, at) if self._string is not None else self._read_between(read, at)
        return self._read_text(read, at) if self._is_begun and not self._has_ended else ""

    def _read_between(self, read: str, at: int) -> int:
        """Read up to and including the next string, bracket or comma; return where the rest begins."""
        between = _BETWEEN.match(read, at)
        at = between.end() if between is not None else at
        match read[at : at + 1]:
            case '"' if self._depth == 1 and self._key == self._name:
                self._is_begun = True
            case '"':
                self._string = []
            case "{" | "[":
                self._depth += 1
            case "}" | "]":
                self._depth -= 1
                self._has_ended = self._depth < 1
            case "," if self._depth == 1:
                self._key, self._is_key_next = None, True
        return at + 1

    def _read_string(self, read: str, at: int) -> int:
        """Read another string, maybe the name of a member; return where the rest begins."""
        assert self._string is not None
        end = _INSIDE.match(read, at)
        assert end is not None
        self._string.append(end[0])
        at = end.end()
        if read[at : at + 1] == '"':
            self._end_string("".join(self._string))
        elif at < len(read):
            self._held = read[at:]  # A backslash, alone as yet.
            return len(read)
        return at + 1

    def _end_string(self, raw: str) -> None:
        self._string = None
        if self._depth == 1 and self._is_key_next:
            try:
                self._key = str(orjson.loads(f'"{raw}"'))
            except orjson.JSONDecodeError:
                self._has_ended = True
            self._is_key_next = False

    def _read_text(self, read: str, at: int) -> str:
        whole = _WHOLE.match(read, at)
        assert whole is not None
        rest = read[whole.end() :]
        if rest and _BEGUN.fullmatch(rest):
            self._held = rest
        elif rest:  # The closing quote, or what no JSON has.
            self._has_ended = True
        text = str(orjson.loads(f'"{whole[0]}"'))
        self._pieces.append(text)
        return text
