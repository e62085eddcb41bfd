"""Files that several processes share: written in one step, for this user only, and watched for changes."""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path


def write_private(path: Path, content: str | bytes) -> None:
    """Replace a file in one step: a process that dies leaves the old one or the new one."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    draft.replace(path)


class FileMarks:
    """Notices changes of files that other programs write. A link that leads to another file is a change too."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self._paths = paths
        self._seen: tuple[object, ...] = ()

    def have_changed(self) -> bool:
        """Return whether a file has changed since the last call. The first call returns true."""
        seen = tuple(map(_mark, self._paths))
        is_new, self._seen = seen != self._seen, seen
        return is_new


def _mark(path: str | Path) -> object:
    try:
        stat = os.stat(path)
    except OSError as error:
        return error.errno
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
