"""Text and names that come out of a sandbox, made harmless to show."""

import re

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # Colours and cursor movements,
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # strings to the terminal, such as its title and the clipboard,
    r"|\x1b[ -/]*[0-~]",  # and the rest.
    re.DOTALL,
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_MAX_PATH_CHARS = 255


def printable(text: str) -> str:
    """Return text without what a terminal would obey; a line keeps what its last carriage return left of it."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", "\n".join(lines))


def is_safe_path(path: str) -> bool:
    """Say whether a path names something below the folder that it is relative to, in characters that can be shown."""
    parts = path.split("/")
    return (
        0 < len(path) <= _MAX_PATH_CHARS
        and path.isprintable()
        and "\\" not in path
        and all(part not in ("", ".", "..") for part in parts)
        and not any("\ud800" <= character <= "\udfff" for character in path)
    )
