"""The ingress replica's side of limits across regions: it hands what the others' gatekeepers ask to its own."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.limits.messages import TransportDown
from deployments.limits.regions.messages import MAX_BYTES
from deployments.limits.regions.proof import HEADER, PATH, RegionTrust

_HEADER = HEADER.encode()


@dataclass(frozen=True, slots=True)
class Lender:
    """What answers requests for loans to `region`; `lend` raises TransportDown, and ValueError for what is none."""

    region: str
    trust: RegionTrust
    lend: Callable[[bytes], Awaitable[bytes]]


class LimitsDoor:
    """Plain ASGI around the application.

    A request without the proof of a region goes on to the application, which has no such path; so does one that was
    meant for another region and came here because that is away.
    """

    def __init__(self, app: ASGIApp, lender: Lender) -> None:
        self._app = app
        self._lender = lender

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer another region's gatekeeper, or pass the request on."""
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        header = next((value.decode("latin-1") for name, value in scope["headers"] if name == _HEADER), "")
        body = await _read(receive) if header else None
        nonce = None if body is None else self._lender.trust.check_request(self._lender.region, header, body)
        if body is None or nonce is None:
            await self._app(scope, _nothing, send)
            return
        try:
            reply = await self._lender.lend(body)
        except (TransportDown, ValueError) as error:
            await _answer(send, 503 if isinstance(error, TransportDown) else 400, b"")
            return
        await _answer(send, 200, reply, self._lender.trust.sign_reply(nonce, reply))


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


async def _nothing() -> dict[str, object]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _answer(send: Send, status: int, body: bytes, proof: str = "") -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if proof:
        headers.append((_HEADER, proof.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
