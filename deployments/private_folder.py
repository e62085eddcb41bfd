"""Folders that only this user may enter, also where others may write beside them, as in /tmp."""

import os
import stat
from hashlib import sha256
from pathlib import Path


def make_private_folder(path: Path) -> None:
    """Make a folder that only this user can enter, or close the one that is there.

    Raises:
        OSError: it cannot be made.
        PermissionError: it is there, and belongs to another user or is a link.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = path.lstat()  # Another user may have put a link there to a folder of this one.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{path} is not this user's own folder. Remove it.")
    path.chmod(0o700)


def private_name(purpose: str, path: Path) -> str:
    """Return the name of a folder that is this user's in a place that others share, in place of the folder `path`."""
    return f"{purpose}-{os.getuid()}-{sha256(str(path).encode()).hexdigest()[:8]}"
