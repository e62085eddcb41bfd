"""The part of HAProxy's configuration by which requests go to other regions. Without a region there is none.

A request leaves where the agent says so, or where no replica of its own region lives. In the second case that may
turn out while it is repeated, so the way to the other regions is also the last server of the backend of replicas. This
server is the process itself: a frontend on a Unix socket, which signs the request and sends it on.

A request that came from another region's front is never sent on: it may only have come because none is left.
"""

import ssl
from urllib.parse import urlsplit

from deployments.limits.regions.proof import PATH as LIMITS_PATH
from serve_app.front.addresses import Address
from serve_app.front.settings import FrontSettings, OtherRegion
from serve_app.front.standing import Standing
from serve_app.front.timings import to_ms
from serve_app.front.trust import FROM_REGION_HEADER, QUESTION_PATH, REQUEST_ID_HEADER, to_base64

REGION_HEADER = "x-manta-region"
"""Of an answer: the region that gave it."""
REGION_PATH = "/regionz"
ELSEWHERE = "elsewhere"
"""The backend of requests that leave, and the name of its server among the replicas."""
STANDING = "standing"
"""A backend without requests. Its one server, of the same name, is in maintenance while the region is left."""
NUM_OTHER_SLOTS = 4
OVER_TLS = "https"

_FOR_THIS_REGION = f"{QUESTION_PATH} {LIMITS_PATH}"
"""What other fronts ask, and the gatekeepers of other regions, which borrow of one that is left too."""
_NOWHERE = Address("127.0.0.1", 9)
_ID_LENGTH = len("req_") + 32
_LEFT = '{"status":"unavailable"}'
_SERVES = '{"status":"ok"}'

_RECEIVING = """\
    acl is_left nbsrv({standing}) eq 0
    acl is_from_region var(txn.from_expected),secure_memcmp(txn.from_signature)
    http-request set-var(txn.from) req.fhdr({from_header})
    http-request set-var(txn.from_signature) var(txn.from),word(3,:)
    http-request set-var(txn.from_expected) var(txn.from),word(1,:,2),hmac(sha256,{key}),hex,lower
    http-request set-var(txn.id) var(txn.from),word(2,:) if is_from_region
    http-request del-header {from_header} unless is_from_region
    http-after-response set-header {region_header} {name} unless {{ res.hdr({region_header}) -m found }}
    http-request return status 503 content-type application/json string '{left}' if reads {{ path {path} }} is_left
    http-request return status 200 content-type application/json string '{serves}' if reads {{ path {path} }}
"""

_LEAVING = """
backend {elsewhere}
    http-reuse safe
    option httpchk
    http-check send meth GET uri /-/healthz ver HTTP/1.1 hdr host manta-front
    http-check expect status 200
    server {elsewhere} unix@{socket} check inter {check_ms}ms fall 1 rise 1

frontend leaving
    bind unix@{socket} mode 600
    acl reads method GET HEAD OPTIONS
    acl repeatable path {repeatable}
    acl is_check path /-/healthz
{aims}
    http-request return status 200 content-type application/json string '{serves}' if is_check has_aim
    http-request deny deny_status 503 if is_check
    http-request deny deny_status 503 if {{ path {for_this_region} }}
    http-request deny deny_status 503 if {{ req.fhdr({from_header}) -m found }}
    http-request set-var-fmt(txn.said) {name}:%[req.fhdr({id_header}),bytes(0,{id_length})]
    http-request set-header {from_header} "%[var(txn.said)]:%[var(txn.said),hmac(sha256,{key}),hex,lower]"
    http-request disable-l7-retry unless reads or METH_POST repeatable
{uses}
{backends}
backend {standing}
    server {standing} {nowhere}{disabled}
"""

_OTHER = """
backend {backend}
    balance leastconn
    http-reuse safe
    timeout connect 3s
    timeout check 3s
    http-request set-header host {host}
    option httpchk
    http-check send meth GET uri {path} ver HTTP/1.1 hdr host {host}
    http-check expect status 200
    option log-health-checks
    default-server check inter {check_ms}ms fall 2 rise 1{tls}
{servers}
"""


def backend_of(region: str) -> str:
    """Return the backend of the fronts of another region."""
    return f"region_{region}"


def sends_on(settings: FrontSettings) -> bool:
    """Return whether there are other regions, to which requests go."""
    return settings.region is not None and bool(settings.region.others)


def server_of(settings: FrontSettings, number: int) -> str:
    """Return the line of the last server among the replicas; "" where there is no other region."""
    if not sends_on(settings):
        return ""
    path = settings.leaving_path(number)
    return f"    server {ELSEWHERE} unix@{path} no-check no-ssl backup track {ELSEWHERE}/{ELSEWHERE}\n"


def render_receiving(settings: FrontSettings) -> str:
    """Return the lines of the clients' frontend, before the request id is signed."""
    if settings.region is None:
        return ""
    return _RECEIVING.format(
        standing=STANDING,
        from_header=FROM_REGION_HEADER,
        region_header=REGION_HEADER,
        key=to_base64(settings.request_key),
        name=settings.region.name,
        path=REGION_PATH,
        left=_LEFT,
        serves=_SERVES,
    )


def render_choice(settings: FrontSettings) -> str:
    """Return the line of the clients' frontend that chooses whether a request leaves."""
    if not sends_on(settings):
        return ""
    return (
        f"    acl stays path {_FOR_THIS_REGION}\n"
        f"    use_backend {ELSEWHERE} if is_left !is_from_region !stays {{ nbsrv({ELSEWHERE}) gt 0 }}\n"
    )


def render_leaving(settings: FrontSettings, number: int, standing: Standing, repeatable: str) -> str:
    """Return the sections of requests that leave."""
    region = settings.region
    if region is None:
        return ""
    disabled = " disabled" if standing.is_left else ""
    if not region.others:
        return f"\nbackend {STANDING}\n    server {STANDING} {_NOWHERE}{disabled}\n"
    backends = [backend_of(other.name) for other in region.others]
    return _LEAVING.format(
        elsewhere=ELSEWHERE,
        socket=settings.leaving_path(number),
        check_ms=to_ms(settings.timings.check_s),
        repeatable=repeatable,
        aims="\n".join(f"    acl has_aim nbsrv({backend}) gt 0" for backend in backends),
        serves=_SERVES,
        for_this_region=_FOR_THIS_REGION,
        from_header=FROM_REGION_HEADER,
        id_header=REQUEST_ID_HEADER,
        id_length=_ID_LENGTH,
        name=region.name,
        key=to_base64(settings.request_key),
        uses="\n".join(
            [
                *(f"    use_backend {backend} if {{ nbsrv({backend}) gt 0 }}" for backend in backends),
                f"    default_backend {backends[0]}",
            ]
        ),
        backends="".join(_render_other(settings, other, standing) for other in region.others),
        standing=STANDING,
        nowhere=_NOWHERE,
        disabled=disabled,
    )


def system_authority() -> str:
    """Return the file, or else the folder, of the authorities that this system believes."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or paths.openssl_cafile


def _render_other(settings: FrontSettings, other: OtherRegion, standing: Standing) -> str:
    parts = urlsplit(other.address)
    known = standing.addresses.get(other.name, ())
    tls = ""
    if parts.scheme == OVER_TLS:
        assert settings.region is not None
        host = parts.hostname
        authority = settings.region_authority_path if settings.region.authority else system_authority()
        tls = f" ssl verify required ca-file {authority} verifyhost {host} sni str({host}) check-sni {host}"
    servers = [
        f"    server r{slot + 1} {known[slot]}" if slot < len(known) else f"    server r{slot + 1} {_NOWHERE} disabled"
        for slot in range(NUM_OTHER_SLOTS)
    ]
    return _OTHER.format(
        backend=backend_of(other.name),
        host=parts.netloc,
        path=REGION_PATH,
        check_ms=to_ms(settings.timings.check_region_s),
        tls=tls,
        servers="\n".join(servers),
    )
