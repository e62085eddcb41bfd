"""Where a process listens for others on its node."""

import os
import tempfile


def socket_path(name: str) -> str:
    """Return the path of a Unix socket, in a folder that only its user may enter."""
    folder = os.path.join(tempfile.gettempdir(), f"manta-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return os.path.join(folder, f"{name}.sock")
