"""A one-node Ray cluster on this machine, which starts no matter how slow the machine is.

`manta serve` runs this as a program: `python -m deployments.local_ray CONFIG FOLDER` starts the cluster, with its files
in a private folder, and then `serve run` on it. The caller ends the processes that are left over.
"""

import os
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from deployments.private_folder import make_private_folder, private_name

_PORTS: Final = range(24_000, 30_000)
"""Below the kernel's ephemeral ports: a port that is free stays free until an agent listens on it."""
_ON_LOOPBACK: Final = {
    # Makes Ray use loopback as the node's address, as on systems where it supports one node only.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "VLLM_HOST_IP": "127.0.0.1",  # The address of Ray's node for vLLM's workers.
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
}
"""Keeps on loopback what would otherwise listen on all interfaces, unless the environment says otherwise."""
_LISTEN_PORT_FILE: Final = "dashboard_agent_listen_port_"
_GCS_PORT_FILE: Final = "gcs_server_port_"
_RAYS_OWN: Final = "tmp"
_MAX_FOLDER: Final = 107 - len(f"/{_RAYS_OWN}/session_2026-01-01_00-00-00_000000_4194304/sockets/dash_MetricsHead")
"""How long a folder's path may be, since the system limits the length of Unix socket paths."""


def choose_folder(state_dir: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for Ray's files: in the state directory, or in RAY_TMPDIR if it is set.

    If the path in the state directory is too long for Unix sockets, the folder is in the temporary directory.
    """
    folder = state_dir / "ray"
    place = environ.get("RAY_TMPDIR")
    if not place and len(str(folder)) <= _MAX_FOLDER:
        return folder
    return Path(place or tempfile.gettempdir()) / private_name("ray", folder)


def start_head(folder: Path, *options: str) -> str:
    """Start a head node with these additional options of `ray start`; return its address for `ray.init`.

    Ray's own folders are writable for everybody, and with their sockets anyone can make its workers run code. So they
    are inside a folder that only this user can enter. The last session is kept there for its logs; older ones are
    removed.

    Ray's raylet ends itself unless its agents have reported their ports within 15 seconds, which is hard-coded (ray
    issue 65983) and too short on a busy machine. So every port is chosen here: the raylet does not wait for a port
    that it was given. It is never given the port of the dashboard's agent, so the file that it waits for is written
    here instead of by the agent.

    Raises:
        Exception: Ray's processes did not start; their logs say why.
        PermissionError: the folder is another user's.
    """
    from ray.scripts.scripts import cli

    make_private_folder(folder)
    temporary = folder / _RAYS_OWN
    for old in sorted(temporary.glob("session_2*"))[:-1]:
        shutil.rmtree(old, ignore_errors=True)
    if os.environ.get("RAY_AUTH_MODE") == "token":
        with redirect_stdout(StringIO()):  # It prints the secret.
            cli(["get-auth-token", "--generate"], standalone_mode=False)
        close_token()
    ports = _free_ports()
    gcs, grpc, listen, runtime_env, metrics = (next(ports) for _ in range(5))
    arguments = [
        f"--port={gcs}",
        f"--dashboard-agent-grpc-port={grpc}",
        f"--dashboard-agent-listen-port={listen}",
        f"--runtime-env-agent-port={runtime_env}",
        f"--metrics-export-port={metrics}",
        "--min-worker-port=0",
        "--max-worker-port=0",
        f"--temp-dir={temporary}",
        "--disable-usage-stats",
    ]
    is_over = Event()
    writing = Thread(target=_write_listen_port, args=(temporary, listen, is_over))
    writing.start()
    os.environ["RAY_START_HOOK"] = f"{__name__}.choose_optional_ports"
    try:
        with redirect_stdout(sys.stderr):
            cli(["start", "--head", *arguments, *options], standalone_mode=False)
    finally:
        del os.environ["RAY_START_HOOK"]
        is_over.set()
        writing.join()
    return f"127.0.0.1:{gcs}"


def close_token() -> None:
    """Make the file of Ray's token private: Ray creates it readable for everybody. A file elsewhere is left alone."""
    path = Path.home() / ".ray" / "auth_token"
    with suppress(OSError):  # It does not exist, or belongs to another user.
        path.chmod(0o600)


def choose_optional_ports(parameters: Any, is_head: bool) -> None:
    """Set what `ray start` has no option for; Ray calls this.

    Ray's own client is not used and gets no port. If the dashboard's usual port is taken, it uses the next one; it
    would not start otherwise, and `manta serve` asks it for the progress of the start.
    """
    parameters.ray_client_server_port = None
    parameters.dashboard_port = None


def main(config: str, folder: str) -> None:
    """Start a head node and serve a configuration on it until Ctrl-C."""
    os.environ.update({**_ON_LOOPBACK, **os.environ})  # Before Ray is imported, which reads it then.
    address = start_head(Path(folder))
    from ray.serve.scripts import cli

    cli(["run", "--address", address, config])


def _free_ports() -> Iterator[int]:
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as listener:
            try:
                listener.bind(("", port))
            except OSError:
                continue
        yield port


def _write_listen_port(temporary: Path, port: int, is_over: Event) -> None:
    """Write the file of this process's session as soon as Ray has given the node an id."""
    while not is_over.wait(0.02):
        for found in temporary.glob(f"session_*_{os.getpid()}/{_GCS_PORT_FILE}*"):
            written = found.with_name(_LISTEN_PORT_FILE + found.name.removeprefix(_GCS_PORT_FILE))
            partial = written.with_suffix(".partial")
            partial.write_text(str(port))
            partial.rename(written)
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
