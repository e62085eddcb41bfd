"""The Unix socket on which a process listens for others on its node."""

import os
import tempfile
from pathlib import Path

from deployments.private_folder import make_private_folder


def socket_path(name: str) -> str:
    """Return the path of the Unix socket `name`, in a folder that only this user may enter; the folder is created.

    Raises:
        PermissionError: the folder is there and another user's, who could listen in its place.
    """
    folder = Path(tempfile.gettempdir()) / f"manta-{os.getuid()}"
    make_private_folder(folder)
    return str(folder / f"{name}.sock")
