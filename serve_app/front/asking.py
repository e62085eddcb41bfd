"""The agent's questions: is this an ingress replica of our service, and which other replicas are there?"""

import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import BadStatusLine, HTTPConnection, HTTPException, HTTPSConnection, RemoteDisconnected
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deployments.proof import NONCE_HEADER, PROOF_HEADER, QUESTION_PATH, FrontTrust, is_same, new_nonce
from serve_app.front.addresses import Address, parse_address
from serve_app.front.timings import USUAL

_MAX_BYTES = 1024 * 1024
REPLICA_NAME = "SERVE_REPLICA::"
"""The prefix of Serve's names of replicas. Before replicas are ready, Serve's controller lists proxies in their place.
These pass the question on like any request, and break off every request when they end."""


class NotOurs(Exception):
    """Another program answers there, or an ingress of another service."""


class NoAnswer(Exception):
    """Nothing answers there now, or it is too busy."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """The proven answer of an ingress replica: the port that it listens on, and the other replicas that it knows.

    `region` is the name of its region, "" if there is only one. `is_ready` is whether a model has started, `is_drained`
    whether the operator has drained the region.
    """

    port: int
    others: frozenset[Address]
    region: str = ""
    is_ready: bool = True
    is_drained: bool = False


def ask(address: Address, trust: FrontTrust, timeout_s: float = USUAL.answer_s, *, over_tls: bool = False) -> Handshake:
    """Return the handshake of the replica at an address. A front there passes the question on to a replica.

    Raises:
        NotOurs: the answer proves nothing.
        NoAnswer: there was none.
    """
    nonce = new_nonce()
    status, headers, body = _get(
        address.host,
        address.port,
        QUESTION_PATH,
        {NONCE_HEADER: nonce, PROOF_HEADER: trust.prove_question(nonce)},
        timeout_s,
        over_tls=over_tls,
    )
    if status >= 500:
        raise NoAnswer(f"{address} answers {status}.")
    if not is_same(headers.get(PROOF_HEADER, ""), trust.prove_answer(nonce, body)):
        raise NotOurs(f"{address} proves nothing.")
    said = json.loads(body)
    return Handshake(
        int(said["port"]),
        frozenset(map(parse_address, said["ingresses"])),
        str(said.get("region") or ""),
        bool(said.get("is_ready", True)),
        bool(said.get("is_drained", False)),
    )


def ask_replica(
    address: Address, trust: FrontTrust, timeout_s: float, region: str = "", *, over_tls: bool = False
) -> Handshake:
    """Return the handshake of the replica that listens at this very address, in this region.

    Raises:
        NotOurs, NoAnswer: as `ask`; also NotOurs if the answer was passed on from another replica, or comes from
            another region.
    """
    handshake = ask(address, trust, timeout_s, over_tls=over_tls)
    if handshake.port != address.port:
        raise NotOurs(f"{address} passes on the answer of another replica.")
    if region and handshake.region and handshake.region != region:
        raise NotOurs(f"{address} belongs to the region {handshake.region}.")
    return handshake


def ask_dashboard(url: str, timeout_s: float, environ: Mapping[str, str] = os.environ) -> frozenset[Address]:
    """Return the replicas that Serve's controller lists on Ray's dashboard; none if the dashboard is away."""
    parts = urlsplit(url)
    token = read_ray_token(environ)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        path = "/api/serve/applications/"
        status, _, body = _get(parts.hostname or "", parts.port or 80, path, headers, timeout_s)
        groups: list[dict[str, Any]] = json.loads(body).get("target_groups") or [] if status == 200 else []
        targets = [target for group in groups if group.get("protocol") == "HTTP" for target in group["targets"]]
        return frozenset(
            Address(str(target["ip"]), int(target["port"]))
            for target in targets
            if target["name"].startswith(REPLICA_NAME)
        )
    except (NoAnswer, NotOurs, ValueError, KeyError, TypeError, AttributeError):
        return frozenset()


def _get(
    host: str, port: int, path: str, headers: Mapping[str, str], timeout_s: float, *, over_tls: bool = False
) -> tuple[int, dict[str, str], bytes]:
    connection = (
        HTTPSConnection(host, port, timeout=timeout_s, context=any_certificate())
        if over_tls
        else HTTPConnection(host, port, timeout=timeout_s)
    )
    try:
        connection.request("GET", path, headers={**headers, "Connection": "close"})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read(_MAX_BYTES)
    except RemoteDisconnected:
        raise NoAnswer(f"{host}:{port} has closed the connection.") from None
    except OSError as error:
        raise NoAnswer(f"{host}:{port} does not answer: {type(error).__name__}.") from None
    except (BadStatusLine, HTTPException):
        raise NotOurs(f"{host}:{port} does not speak HTTP.") from None
    finally:
        connection.close()


def any_certificate() -> ssl.SSLContext:
    """Return a context that accepts every certificate, for questions that carry no secret.

    The certificates of fronts and replicas name the service, not their node. Their answers carry a proof of their own.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def read_ray_token(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the token with which clients of Ray authenticate; None if there is none."""
    if token := environ.get("RAY_AUTH_TOKEN"):
        return token
    path = Path(environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    try:
        return path.read_text().strip()
    except OSError:
        return None
