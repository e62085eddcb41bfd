"""Where a replica's end of the side channel is."""

import os
import tempfile

from ray import serve


def socket_path() -> str:
    """Return the path of this replica's Unix socket, in a folder that only its user may enter."""
    folder = os.path.join(tempfile.gettempdir(), f"manta-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    name = serve.get_replica_context().replica_id.unique_id
    return os.path.join(folder, f"{name}.sock")
