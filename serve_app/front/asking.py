"""The agent's questions: is this an ingress replica of our service, and which others are there?"""

import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import BadStatusLine, HTTPConnection, HTTPException, HTTPSConnection, RemoteDisconnected
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from serve_app.front.addresses import Address, parse_address
from serve_app.front.timings import USUAL
from serve_app.front.trust import NONCE_HEADER, PROOF_HEADER, QUESTION_PATH, FrontTrust, is_same, new_nonce

_MAX_BYTES = 1024 * 1024
REPLICA_NAME = "SERVE_REPLICA::"
"""How Serve's name of a replica begins. Before replicas are ready its controller names proxies in their place, which
pass the question on like everything else, and end with every request that goes through them."""


class Foreign(Exception):
    """What listens there is another program, or an ingress of another service."""


class NoAnswer(Exception):
    """Nothing answers there now, or it is too busy to."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """What an ingress replica has said with proof: the port that it listens on, and the replicas that it knows.

    `region` is its region's name, "" where there is only one. `is_ready` is whether a model has started, `is_drained`
    whether the region is drained.
    """

    port: int
    others: frozenset[Address]
    region: str = ""
    is_ready: bool = True
    is_drained: bool = False


def ask(
    address: Address, trust: FrontTrust, timeout_s: float = USUAL.answer_s, *, over_tls: bool = False
) -> Introduction:
    """Ask what listens at an address to introduce itself; a front passes the question on to an ingress.

    Raises:
        Foreign: it is none of ours.
        NoAnswer: it did not answer.
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
        raise Foreign(f"{address} proves nothing.")
    said = json.loads(body)
    return Introduction(
        int(said["port"]),
        frozenset(map(parse_address, said["ingresses"])),
        str(said.get("region") or ""),
        bool(said.get("is_ready", True)),
        bool(said.get("is_drained", False)),
    )


def ask_replica(
    address: Address, trust: FrontTrust, timeout_s: float, region: str = "", *, over_tls: bool = False
) -> Introduction:
    """Ask the replica at this very address, of this region, to introduce itself.

    Raises:
        Foreign, NoAnswer: as `ask`; also Foreign where the answer is that of a replica elsewhere, passed on, or of
            another region.
    """
    introduction = ask(address, trust, timeout_s, over_tls=over_tls)
    if introduction.port != address.port:
        raise Foreign(f"{address} passes on what another one answers.")
    if region and introduction.region and introduction.region != region:
        raise Foreign(f"{address} belongs to the region {introduction.region}.")
    return introduction


def ask_dashboard(url: str, timeout_s: float, environ: Mapping[str, str] = os.environ) -> frozenset[Address]:
    """Return the replicas that Serve's controller names over Ray's dashboard; none where it cannot be asked."""
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
    except (NoAnswer, Foreign, ValueError, KeyError, TypeError, AttributeError):
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
        raise Foreign(f"{host}:{port} does not speak HTTP.") from None
    finally:
        connection.close()


def any_certificate() -> ssl.SSLContext:
    """Return a context that believes every certificate, for questions that carry no secret.

    Those of fronts and replicas name the service, not their node. What they say of replicas proves itself.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def read_ray_token(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the token that Ray asks its clients for; None where there is none to read."""
    if token := environ.get("RAY_AUTH_TOKEN"):
        return token
    path = Path(environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    try:
        return path.read_text().strip()
    except OSError:
        return None
