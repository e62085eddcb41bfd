"""A Ray cluster of one node on this machine, which starts however slow the machine is.

`manta serve` runs this as a program: `python -m deployments.local_ray CONFIG` starts the cluster and then Serve's own
`serve run` on it. Whoever starts the program ends the processes that it leaves.
"""

import os
import random
import socket
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

_PORTS: Final = range(24_000, 30_000)
"""Below those that the kernel gives to connections: a port that is free stays free until an agent listens on it."""
_LISTEN_PORT_FILE: Final = "dashboard_agent_listen_port_"
_GCS_PORT_FILE: Final = "gcs_server_port_"


def start_head(*options: str) -> str:
    """Start a head node, with more options of `ray start`; return its address, for `ray.init`.

    Ray's raylet ends itself unless its agents have written down their ports within 15 seconds, which is hard-coded (ray
    issue 65983) and not enough on a busy machine. So every port is chosen here: the raylet waits for none that it was
    given. It is never given the one on which the dashboard's agent listens, so the file that it waits for is written
    here, in place of the agent's.

    Raises:
        Exception: Ray's processes did not start; their logs say why.
    """
    from ray.scripts.scripts import cli

    if os.environ.get("RAY_AUTH_MODE") == "token":
        with redirect_stdout(StringIO()):  # It prints the secret.
            cli(["get-auth-token", "--generate"], standalone_mode=False)
    ports = _free_ports()
    gcs, grpc, listen, runtime_env, metrics = (next(ports) for _ in range(5))
    temporary = Path(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp") / "ray"  # noqa: S108 - Ray's.
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


def choose_optional_ports(parameters: Any, is_head: bool) -> None:
    """Say what `ray start` has no option for; Ray calls this.

    There is no port for Ray's own client, which nobody uses here. The dashboard takes the next one where its usual one
    is taken: it would be left out, and without it nobody learns how far the service is.
    """
    parameters.ray_client_server_port = None
    parameters.dashboard_port = None


def main(config: str) -> None:
    """Start a head node, and serve a configuration on it until Ctrl-C."""
    address = start_head()
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
    """Write the file for the session that this process starts, once Ray has given its node an id."""
    while not is_over.wait(0.02):
        for found in temporary.glob(f"session_*_{os.getpid()}/{_GCS_PORT_FILE}*"):
            written = found.with_name(_LISTEN_PORT_FILE + found.name.removeprefix(_GCS_PORT_FILE))
            partial = written.with_suffix(".partial")
            partial.write_text(str(port))
            partial.rename(written)
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
