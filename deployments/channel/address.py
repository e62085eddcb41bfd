"""The Unix socket on which a process listens for others on its node."""

import os
import tempfile


def socket_path(name: str) -> str:
    """Return the path of the Unix socket `name`, in a folder that only this user may enter; the folder is created."""
    folder = os.path.join(tempfile.gettempdir(), f"manta-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return os.path.join(folder, f"{name}.sock")
