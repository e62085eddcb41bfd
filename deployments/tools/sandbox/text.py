"""Makes text and names from a sandbox harmless to display."""

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
    """Return text without control sequences; a line keeps the part after its last carriage return."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", "\n".join(lines))


def is_safe_path(path: str) -> bool:
    """Return whether a relative path stays below its folder and has only printable characters."""
    parts = path.split("/")
    return (
        0 < len(path) <= _MAX_PATH_CHARS
        and path.isprintable()
        and "\\" not in path
        and all(part not in ("", ".", "..") for part in parts)
        and not any("\ud800" <= character <= "\udfff" for character in path)
    )
