"""Folders that only this user can enter, even in places where others may write, such as /tmp."""

import os
import stat
from hashlib import sha256
from pathlib import Path


def make_private_folder(path: Path) -> None:
    """Create a folder that only this user can enter, or make an existing one private.

    Raises:
        OSError: it cannot be created.
        PermissionError: it belongs to another user, or is a link.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = path.lstat()  # Another user may have put a link there to a folder of this one.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{path} is not this user's own folder. Remove it.")
    path.chmod(0o700)


def private_name(purpose: str, path: Path) -> str:
    """Return the name that stands for the folder `path` in a place that users share; it is unique to this user."""
    return f"{purpose}-{os.getuid()}-{sha256(str(path).encode()).hexdigest()[:8]}"
