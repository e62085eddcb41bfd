"""The middleware of an ingress replica that answers fronts, and the gatekeepers of other regions."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import asdict, dataclass

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.limits.messages import TransportDown
from deployments.limits.regions.messages import MAX_BYTES
from deployments.proof import (
    LIMITS_HEADER,
    LIMITS_PATH,
    NONCE_HEADER,
    PROOF_HEADER,
    QUESTION_PATH,
    REQUEST_ID_HEADER,
    FrontTrust,
    RegionTrust,
    is_same,
)
from serve_app.http.middleware import REQUEST_ID

_ID_HEADER = REQUEST_ID_HEADER.encode()
_LIMITS_HEADER = LIMITS_HEADER.encode()


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """The status of a replica: the name of its region, "" if there is only one, and whether the region is drained.

    `is_ready` is whether a model has started.
    """

    region: str = ""
    is_ready: bool = True
    is_drained: bool = False


class FrontMiddleware:
    """Answers the handshakes of fronts, and adopts the request ids that they signed.

    `others` returns the addresses of all replicas that this one knows, `status` its own status. A question without a
    front's proof goes on to the application, which has no such path.
    """

    def __init__(
        self,
        app: ASGIApp,
        trust: FrontTrust,
        others: Callable[[], Collection[str]],
        status: Callable[[], ReplicaStatus] = ReplicaStatus,
    ) -> None:
        self._app = app
        self._trust = trust
        self._others = others
        self._status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a front's question, or pass the request on."""
        if scope["type"] == "http":
            if scope["path"] == QUESTION_PATH and (nonce := self._proved_nonce(scope)) is not None:
                server = scope.get("server") or ("", 0)
                handshake = {"port": server[1], "ingresses": sorted(self._others()), **asdict(self._status())}
                body = orjson.dumps(handshake)
                await _answer(send, 200, body, (PROOF_HEADER.encode(), self._trust.prove_answer(nonce, body).encode()))
                return
            for name, value in scope["headers"]:
                if name == _ID_HEADER:
                    scope[REQUEST_ID] = self._trust.request_id_of(value)
        await self._app(scope, receive, send)

    def _proved_nonce(self, scope: Scope) -> str | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        nonce = headers.get(NONCE_HEADER, "")
        return nonce if is_same(headers.get(PROOF_HEADER, ""), self._trust.prove_question(nonce)) else None


@dataclass(frozen=True, slots=True)
class QuotaLender:
    """Answers requests for quota loans to `region`; `lend` raises TransportDown, and ValueError for a bad request."""

    region: str
    trust: RegionTrust
    lend: Callable[[bytes], Awaitable[bytes]]


class LimitsMiddleware:
    """Passes requests of other regions' gatekeepers to the gatekeeper of this region.

    A request without a region's proof goes on to the application, which has no such path. So does a request that was
    meant for another region, and came here because that region is away.
    """

    def __init__(self, app: ASGIApp, lender: QuotaLender) -> None:
        self._app = app
        self._lender = lender

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer another region's gatekeeper, or pass the request on."""
        if scope["type"] != "http" or scope["path"] != LIMITS_PATH or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        header = next((value.decode("latin-1") for name, value in scope["headers"] if name == _LIMITS_HEADER), "")
        body = await _read(receive) if header else None
        nonce = None if body is None else self._lender.trust.check_request(self._lender.region, header, body)
        if body is None or nonce is None:
            await self._app(scope, _receive_nothing, send)
            return
        try:
            reply = await self._lender.lend(body)
        except (TransportDown, ValueError) as error:
            await _answer(send, 503 if isinstance(error, TransportDown) else 400, b"")
            return
        await _answer(send, 200, reply, (_LIMITS_HEADER, self._lender.trust.sign_reply(nonce, reply).encode()))


async def _read(receive: Receive) -> bytes | None:
    """Return the body; None if it is too long, or the client is gone."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > MAX_BYTES:
            return None
        if not message.get("more_body", False):
            return bytes(body)


async def _receive_nothing() -> dict[str, object]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _answer(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    usual = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*usual, *headers]})
    await send({"type": "http.response.body", "body": body})
