"""HAProxy's configuration. It is written once for each start of a process; what changes later goes over its socket.

Three of its ways are not the usual ones:

- Splicing is off (`NO_SPLICING`). With it HAProxy 2.8 hands a body that came in more than one segment to the kernel and
  then no longer looks at the client's connection, so it does not notice when a client leaves before a whole answer.
- The first request of a client goes over a connection of its own to the replica (`http-reuse safe`). Over one that
  others have used, HAProxy takes the death of the replica for the end of an idle connection, and closes on the client
  without a word.
- A request whose replica dies before the first byte of its answer is sent to another one, under the same request id.
  HAProxy can repeat only what it still holds, so it waits for bodies of up to MAX_REPEATED_BYTES before it sends them.
  What creates something is not repeated once it was sent: it may have been created.

What a replica tells whoever runs the service, its metrics and Serve's own pages, clients do not get. The paths are
compared as the replica reads them, decoded. KubeRay's readiness probe asks Serve's health check over loopback.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from deployments.operations import MODEL_OPERATIONS
from serve_app.front.addresses import Address
from serve_app.front.answers import LIVE, LONGEST_URL, NOT_HERE, NOT_READY, URL_TOO_LONG
from serve_app.front.holding import render_holder, render_holding, render_script
from serve_app.front.regions import render_choice, render_leaving, render_receiving, sends_on, server_of
from serve_app.front.settings import NUM_PROXIES, FrontSettings
from serve_app.front.standing import Standing
from serve_app.front.timings import to_ms
from serve_app.front.trust import FRONTS_PATH, REQUEST_ID_HEADER, to_base64

NO_SPLICING = "-dS"
MAIN, LAST_RESORT = "ingress", "ingress_unchecked"
"""The backends. Both have the same servers; the second is for when the checks say that none of them lives."""
MAX_REPEATED_BYTES = 96 * 1024
OWN_WEIGHT, OTHER_WEIGHT = 256, 8
"""Of replicas on this node and on others: the others take over where there is none here, or too much for them."""
EMPTY = Address("127.0.0.1", 9)
"""The address of a slot that has no replica; nothing is ever sent there."""

# HAProxy copies the whole buffer of each request that it may repeat. Twice the size cost 15 µs more a request, and
# a process with 500 streams took twice the memory (190 MB).
_BUFFER_BYTES = 128 * 1024
_MAX_HEADERS = 1000
_HOT_BUFFERS = 64  # Kept by each thread to be used again; of HAProxy's own half megabyte there would be two.
_REPEATABLE = (
    *(path for operation in MODEL_OPERATIONS.values() for path in operation.paths),
    "/v1/responses/input_tokens",
    "/v1/responses/compact",
)
_HTTPS_PORT = 443
_PROTO = "    http-request set-header x-forwarded-proto https\n"
_HSTS = '    http-after-response set-header strict-transport-security "max-age=31536000"\n'
# A replica that refuses a connection is left out at once, so that a request whose replicas have all died together
# still reaches the last server: another region, or the place to wait.
_OBSERVED = " observe layer4 error-limit 1 on-error mark-down"
# A request that a dead replica refuses waits as long, too, before another one gets it (HAProxy's manual, `retries`).
_CONNECT_MS = 500
_HANDSHAKE_MS = 1000  # With TLS the replica itself takes part, and may be busy.
# The client timeout is this many times the timeout of a body, so that the replica refuses a slow body first. It ends
# connections whose client does not read the answer, or whose answer did not wait for the body.
_CLIENT_WAITS = 2
_CORES_PER_THREAD = 4
_MAX_THREADS = 4

_UNKNOWN = Standing()

_ADDRESSES = """\
backend addresses
    stick-table type ipv6 size 100k expire 1m store conn_cur

"""
# Where both are taken on one socket, IPv4 addresses come as IPv6's.
_COUNTING = """\
    acl is_trusted src {trusted}
    acl is_ipv4 src ::ffff:0:0/96
    tcp-request connection track-sc0 src table addresses if !is_trusted is_ipv4
    tcp-request connection track-sc0 src,ipmask(32,64) table addresses if !is_trusted !is_ipv4
    tcp-request connection reject if {{ sc0_conn_cur(addresses) gt {max_connections} }}
"""

_TEMPLATE = """\
global
    stats socket {socket} mode 600 level admin expose-fd listeners
    nbthread {threads}
    tune.bufsize {buffer_bytes}
    tune.http.maxhdr {max_headers}
    tune.memory.hot-size {hot_bytes}
    hard-stop-after 1h
{script}
defaults
    mode http
    timeout connect {connect_ms}ms
    timeout queue 1s
    timeout client {client_timeout_s}s
    timeout server 1h
    timeout tunnel 1h
    timeout http-request {receive_timeout_s}s
    timeout http-keep-alive 5m
    timeout check 2s
    retries 3
    retry-on conn-failure empty-response
    option redispatch 1
    option abortonclose
    option http-no-delay
    option http-ignore-probes
    option idle-close-on-response
    option clitcpka
    clitcpka-idle 60s
    clitcpka-intvl 10s
    clitcpka-cnt 3
    option srvtcpka
    srvtcpka-idle 1s
    srvtcpka-intvl 1s
    srvtcpka-cnt 2
{error_files}

{addresses}{redirect}frontend clients
    bind {bind}
{counting}    acl reads method GET HEAD OPTIONS
    acl repeatable path {repeatable}
    acl has_body req.hdr_val(content-length) gt 0
    acl has_large_body req.hdr_val(content-length) gt {max_repeated_bytes}
    acl has_no_replica {num_replicas} eq 0
    acl for_operators path,url_dec -m beg /metrics /-/
    acl for_fronts path -m beg {fronts_path}
    acl is_probe path /-/healthz
    acl is_here src 127.0.0.0/8 ::1
    acl asks_readiness path /readyz /readyz/ /health /health/ /ping /ping/
    acl has_number var(txn.id) -m found
    acl is_numbered res.hdr(x-request-id) -m found
    http-request set-var(txn.number) uuid(),regsub(-,,g)
    http-request set-var-fmt(txn.id) req_%[var(txn.number)]
{receiving}    http-request set-header {id_header} "%[var(txn.id)] %[var(txn.id),hmac(sha256,{request_key}),hex,lower]"
    http-request set-header x-forwarded-for %[src]
{proto}{hsts}    http-after-response set-header x-request-id %[var(txn.id)] if has_number !is_numbered
    http-request return status 414 content-type application/json string {too_long} if {{ url,length gt {longest_url} }}
    http-request return status 404 content-type application/json string {not_here} if {hidden}
    http-request return status 200 content-type application/json string {live} if reads {{ path /livez /livez/ }}
    http-request return status 503 content-type application/json string {not_ready} if asks_readiness has_no_replica
    http-request wait-for-body time {receive_timeout_s}s if has_body !has_large_body
    http-request disable-l7-retry unless reads or METH_POST repeatable
{choice}{resort}    default_backend {main}

backend {main}
    balance leastconn
    http-reuse safe
    option httpchk
    http-check send meth GET uri /-/healthz ver HTTP/1.1 hdr host manta-front
    http-check expect status 200
    option log-health-checks
    default-server check inter {check_ms}ms fall 2 rise 1 weight {own_weight}{observed}{ingress_tls}
{main_servers}
{elsewhere}{holder}
backend {last_resort}
    balance leastconn
    http-reuse safe
{default_tls}{last_resort_servers}
{holding}{leaving}
frontend statistics
    bind {stats_host}:{stats_port}
    http-request use-service prometheus-exporter if {{ path /metrics }}
    stats enable
    stats uri /
"""


def render_config(
    settings: FrontSettings,
    number: int,
    answers: Mapping[int, Path],
    servers: Iterable[tuple[Address, bool]] = (),
    standing: Standing = _UNKNOWN,
) -> str:
    """Return the configuration of one process of the front, with the servers that it has from its first moment.

    `servers` are addresses of ingress replicas, each with whether it is on this node. `standing` is that of the region,
    if there is one.
    """
    slots = [*servers][: settings.num_slots]
    repeatable = " ".join(f"{path} {path}/" for path in _REPEATABLE)
    ingress_tls = _render_ingress_tls(settings)
    return _TEMPLATE.format(
        socket=settings.socket_path(number),
        threads=min(_MAX_THREADS, max(1, (os.cpu_count() or 1) // _CORES_PER_THREAD)),
        buffer_bytes=_BUFFER_BYTES,
        hot_bytes=_HOT_BUFFERS * _BUFFER_BYTES,
        connect_ms=_CONNECT_MS if settings.ingress_tls is None else _HANDSHAKE_MS,
        receive_timeout_s=max(1, round(settings.receive_timeout_s)),
        client_timeout_s=max(2, round(_CLIENT_WAITS * settings.receive_timeout_s)),
        addresses="" if settings.address_bound.max_connections is None else _ADDRESSES,
        counting=_render_counting(settings),
        error_files="\n".join(f"    errorfile {status} {path}" for status, path in answers.items()),
        bind=_render_bind(settings),
        redirect=_render_redirect(settings),
        hsts=_HSTS if settings.tls else "",
        proto=_PROTO if settings.tls else "",
        id_header=REQUEST_ID_HEADER,
        request_key=to_base64(settings.request_key),
        receiving=render_receiving(settings),
        choice=render_choice(settings),
        resort=f"    use_backend {LAST_RESORT} if has_no_replica\n" if sends_on(settings) else "",
        repeatable=repeatable,
        live=_quoted(LIVE),
        not_here=_quoted(NOT_HERE),
        too_long=_quoted(URL_TOO_LONG),
        longest_url=LONGEST_URL,
        max_headers=_MAX_HEADERS,
        not_ready=_quoted(NOT_READY),
        fronts_path=FRONTS_PATH,
        hidden="for_operators !for_fronts !is_probe or is_probe !is_here",
        max_repeated_bytes=MAX_REPEATED_BYTES,
        main=MAIN,
        last_resort=LAST_RESORT,
        own_weight=OWN_WEIGHT,
        check_ms=to_ms(settings.timings.check_s),
        main_servers=_render_slots(slots, settings.num_slots, has_weights=True),
        last_resort_servers=_render_slots(slots, settings.num_slots, has_weights=False),
        ingress_tls=ingress_tls,
        default_tls=f"    default-server{ingress_tls}\n" if ingress_tls else "",
        observed=_OBSERVED,
        elsewhere=server_of(settings, number),
        holder=render_holder(settings, number),
        holding=render_holding(settings, number, MAIN, LAST_RESORT, repeatable),
        script=render_script(settings, MAIN),
        num_replicas=f"nbsrv({MAIN})" if sends_on(settings) else "lua.num_living",
        leaving=render_leaving(settings, number, standing, repeatable),
        stats_host=bracketed(settings.stats_host),
        stats_port=settings.stats_port + number,
    )


def _render_bind(settings: FrontSettings) -> str:
    address = f"{bracketed(settings.host)}:{settings.port}"
    if settings.tls is None:
        return f"{address} proto h1"  # HTTP/2 without TLS is not offered, whatever a connection begins with.
    return f"{address} ssl crt {settings.certificate_path} alpn h2,http/1.1 ssl-min-ver TLSv1.2"


def _render_counting(settings: FrontSettings) -> str:
    """Return the lines of a frontend that bound the connections of each address, "" where they are not bounded.

    Each process counts its own, and the kernel spreads them evenly.
    """
    bound = settings.address_bound
    if bound.max_connections is None:
        return ""
    trusted = " ".join(bound.trusted)
    return _COUNTING.format(trusted=trusted, max_connections=-(-bound.max_connections // NUM_PROXIES))


def _render_redirect(settings: FrontSettings) -> str:
    """Return the frontend that sends plain HTTP on to TLS, "" where none is wanted."""
    if settings.tls is None or settings.tls.redirect_port is None:
        return ""
    bind = f"{bracketed(settings.host)}:{settings.tls.redirect_port}"
    # The port that the client named is that of plain HTTP.
    to_port = "" if settings.port == _HTTPS_PORT else f":{settings.port}"
    host = "%[req.hdr(host),regsub(:[0-9]+$,,)]"
    return f"""\
frontend plain
    bind {bind}
{_render_counting(settings)}\
    http-request return status 400 content-type text/plain string "No Host header." if !{{ req.hdr(host) -m found }}
    http-request redirect location https://{host}{to_port}%[capture.req.uri] code 308

"""


def _render_ingress_tls(settings: FrontSettings) -> str:
    """Return the options of servers that speak TLS, "" where they do not. Health checks speak it too."""
    if settings.ingress_tls is None:
        return ""
    name = settings.ingress_tls.name
    authority = settings.ingress_authority_path
    return f" ssl verify required ca-file {authority} verifyhost {name} sni str({name}) check-sni {name}"


def bracketed(host: str) -> str:
    """Return a host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def _render_slots(servers: list[tuple[Address, bool]], num_slots: int, *, has_weights: bool) -> str:
    lines = []
    for number in range(num_slots):
        if number < len(servers):
            address, is_own = servers[number]
            weight = f" weight {OWN_WEIGHT if is_own else OTHER_WEIGHT}" if has_weights else ""
            lines.append(f"    server s{number + 1} {bracketed(address.host)}:{address.port}{weight}")
        else:
            lines.append(f"    server s{number + 1} {EMPTY.host}:{EMPTY.port} disabled")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text + "'"
