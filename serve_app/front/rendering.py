"""HAProxy's configuration and its own answers, written at each start of a process. Later changes go over its socket.

Unusual in the template `haproxy.cfg.jinja`:

- Splicing is off (`NO_SPLICING`). With it HAProxy 2.8 passes a body of several segments to the kernel and stops
  watching the client's connection, so it does not notice when a client leaves before a whole answer.
- The first request of a client gets its own connection to the replica (`http-reuse safe`). On a used connection HAProxy
  takes the death of a replica for the end of an idle connection, and closes the client's without an answer.
- A request whose replica dies before the first byte of its answer is repeated at another, under the same request id.
  HAProxy can repeat only what it still holds, so it waits for bodies of up to MAX_REPEATED_BYTES before it sends them.
  A request that creates something is not repeated once it was sent: it may have been created.
- A request leaves the region if the agent has drained the region, or if no replica lives there. That no replica lives
  may turn out while a request is repeated, so the last server among the replicas is the HAProxy process itself: a
  frontend on a Unix socket, which signs the request and forwards it. A request from another region is never forwarded
  again.
- Without other regions, this last server is a queue: its Lua script holds requests until a replica lives again, and
  refuses them at once if none has lived for longer than `FrontTimings.patience_s`.

Clients do not reach a replica's metrics and Serve's own pages, which are for operators. The paths are compared as the
replica reads them, decoded. KubeRay's readiness probe asks Serve's health check over loopback.
"""

import json
import os
import ssl
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from itertools import zip_longest
from pathlib import Path
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from deployments.files import write_private
from deployments.operations import MODEL_OPERATIONS
from deployments.proof import FROM_REGION_HEADER, FRONTS_PATH, LIMITS_PATH, QUESTION_PATH, REQUEST_ID_HEADER, to_base64
from serve_app.errors.api import ApiError, BadRequest, NotFound, ReceiveTimeout
from serve_app.errors.capacity import Unavailable
from serve_app.front.addresses import Address
from serve_app.front.settings import NUM_PROXIES, FrontSettings
from serve_app.front.table import RegionState

NO_SPLICING = "-dS"
MAIN, LAST_RESORT = "ingress", "ingress_unchecked"
"""The backends of replicas. Both have the same servers; the second is used when the checks find no living one."""
ELSEWHERE = "elsewhere"
"""The backend of requests that are forwarded, and the name of its server among the replicas."""
STATE_BACKEND = "this_region"
"""A backend without requests. Its server, of the same name, is in maintenance while the region is drained."""
MAX_REPEATED_BYTES = 96 * 1024
OWN_WEIGHT, OTHER_WEIGHT = 256, 8
"""Of replicas on this node and on others. The others take over if this node has none, or too few."""
EMPTY = Address("127.0.0.1", 9)
"""The address of an empty slot; no request is sent there."""
NUM_REGION_SLOTS = 4
OVER_TLS = "https"
REGION_HEADER = "x-manta-region"
"""Names the region that answered."""
REGION_PATH = "/regionz"
MAX_QUEUED = 512
"""Requests that one process holds, each with two buffers; more are refused."""
LONGEST_URL = 60_000
"""In bytes. A replica's server would refuse 65,536 without an answer."""

# HAProxy copies the whole buffer of each request that it may repeat. Twice the size cost 15 µs more a request, and
# a process with 500 streams took twice the memory (190 MB).
_BUFFER_BYTES = 128 * 1024
_REPEATABLE = (
    *(path for operation in MODEL_OPERATIONS.values() for path in operation.paths),
    "/v1/responses/input_tokens",
    "/v1/responses/compact",
)
# A request that a dead replica refuses waits as long before another replica gets it (HAProxy's manual, `retries`).
_CONNECT_MS = 500
_HANDSHAKE_MS = 1000  # With TLS the replica itself takes part, and may be busy.
# The client timeout is this many times the timeout of a body, so that the replica refuses a slow body first. It ends
# connections whose client does not read the answer, or whose answer did not wait for the body.
_CLIENT_WAITS = 2
_CORES_PER_THREAD = 4
_MAX_THREADS = 4
_NOT_HERE = NotFound("Invalid URL. Operators read metrics elsewhere: see the page on monitoring.", code="unknown_url")
_URL_TOO_LONG = BadRequest(f"The URL of your request is longer than {LONGEST_URL} bytes.")
_AWAY = "The service cannot take your request at the moment. Please retry your request."
_NOT_HTTP = "Your request could not be read: it is not valid HTTP, its headers are too large, or its body broke off."
_UNKNOWN = RegionState()


def backend_of(region: str) -> str:
    """Return the backend of the fronts of another region."""
    return f"region_{region}"


_TEMPLATES = Environment(  # noqa: S701 - No HTML.
    loader=FileSystemLoader(Path(__file__).parent),
    undefined=StrictUndefined,
    trim_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.globals.update(
    buffer_bytes=_BUFFER_BYTES,
    repeatable=" ".join(f"{path} {path}/" for path in _REPEATABLE),
    max_repeated_bytes=MAX_REPEATED_BYTES,
    main=MAIN,
    last_resort=LAST_RESORT,
    elsewhere=ELSEWHERE,
    state_backend=STATE_BACKEND,
    own_weight=OWN_WEIGHT,
    empty=str(EMPTY),
    queueing_script=Path(__file__).with_name("queueing.lua"),
    max_queued=MAX_QUEUED,
    fronts_path=FRONTS_PATH,
    for_this_region=f"{QUESTION_PATH} {LIMITS_PATH}",  # Other regions borrow from a drained region too.
    id_header=REQUEST_ID_HEADER,
    id_length=len("req_") + 32,
    from_header=FROM_REGION_HEADER,
    region_header=REGION_HEADER,
    region_path=REGION_PATH,
    backend_of=backend_of,
    ms=lambda time_s: round(time_s * 1000),
    not_here=json.dumps(_NOT_HERE.to_wire()),
    url_too_long=json.dumps(_URL_TOO_LONG.to_wire()),
    longest_url=LONGEST_URL,
)


def render_config(
    settings: FrontSettings,
    number: int,
    answers: Mapping[int, Path],
    servers: Iterable[tuple[Address, bool]] = (),
    state: RegionState = _UNKNOWN,
) -> str:
    """Return the configuration of one process of the front, with the servers that it has from its first moment.

    `servers` are addresses of ingress replicas, each with whether it is on this node. `state` is that of the region.
    """
    known = [(str(address), OWN_WEIGHT if is_own else OTHER_WEIGHT) for address, is_own in servers]
    known = known[: settings.num_slots]
    bound = settings.address_bound.max_connections
    return _TEMPLATES.get_template("haproxy.cfg.jinja").render(
        settings=settings,
        number=number,
        answers=answers,
        state=state,
        region=settings.region,
        timings=settings.timings,
        forwards=settings.has_other_regions,
        others=_other_regions(settings, state),
        threads=min(_MAX_THREADS, max(1, (os.cpu_count() or 1) // _CORES_PER_THREAD)),
        connect_ms=_CONNECT_MS if settings.ingress_tls is None else _HANDSHAKE_MS,
        receive_timeout_s=max(1, round(settings.receive_timeout_s)),
        client_timeout_s=max(2, round(_CLIENT_WAITS * settings.receive_timeout_s)),
        # Each process counts its own connections, and the kernel spreads them evenly.
        max_connections=None if bound is None else -(-bound // NUM_PROXIES),
        host=_bracketed(settings.host),
        stats_host=_bracketed(settings.stats_host),
        slots=[*known, *[(str(EMPTY), None)] * (settings.num_slots - len(known))],
        ingress_tls=_render_ingress_tls(settings),
        request_key=to_base64(settings.trust.request_key),
    )


def _other_regions(settings: FrontSettings, state: RegionState) -> list[tuple[str, str, list[Address | None], str]]:
    """Return each other region: its name, its host, an address or None for each slot, and the options of TLS."""
    others = []
    for name, url in settings.region.others.items() if settings.region else ():
        parts = urlsplit(url)
        known = state.addresses.get(name, ())[:NUM_REGION_SLOTS]
        addresses = [address for address, _ in zip_longest(known, range(NUM_REGION_SLOTS))]
        tls = _render_tls(_region_authority(settings), parts.hostname or "") if parts.scheme == OVER_TLS else ""
        others.append((name, parts.netloc, addresses, tls))
    return others


def _region_authority(settings: FrontSettings) -> str:
    """Return the file, or else the folder, of the authorities trusted for other regions."""
    if settings.region is not None and settings.region.certificate_authority is not None:
        return str(settings.region_authority_path)
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or paths.openssl_cafile


def _render_ingress_tls(settings: FrontSettings) -> str:
    tls = settings.ingress_tls
    return "" if tls is None else _render_tls(str(settings.ingress_authority_path), tls.name)


def _render_tls(authority: str, name: str) -> str:
    """Return the options of servers that speak TLS, in their health checks too."""
    return f" ssl verify required ca-file {authority} verifyhost {name} sni str({name}) check-sni {name}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def write_answers(folder: Path, receive_timeout_s: float) -> dict[int, Path]:
    """Write HAProxy's own answer to each status into a file, in the shape of all other errors; return the files.

    A failed connection to a replica is HAProxy's 502, 503 or 504, and one and the same 503 for clients. HAProxy refuses
    bytes that are no HTTP at all with a page of its own, which no setting changes.
    """
    away = Unavailable(_AWAY)
    errors: dict[int, ApiError] = {
        400: BadRequest(_NOT_HTTP),
        408: ReceiveTimeout(receive_timeout_s),
        500: ApiError(),
        502: away,
        503: away,
        504: away,
    }
    paths = {}
    for status, error in errors.items():
        paths[status] = folder / f"{status}.http"
        write_private(paths[status], _render_answer(error))  # Another process may be reading it.
    return paths


def _render_answer(error: ApiError) -> bytes:
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
