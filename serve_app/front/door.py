"""The ingress replica's side of the front: it introduces itself to fronts, and takes over the request ids they gave."""

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.front.trust import (
    NONCE_HEADER,
    PROOF_HEADER,
    QUESTION_PATH,
    REQUEST_ID_HEADER,
    FrontTrust,
    is_same,
)
from serve_app.http.middleware import REQUEST_ID

_ID_HEADER = REQUEST_ID_HEADER.encode()


@dataclass(frozen=True, slots=True)
class ReplicaStanding:
    """How a replica and its region stand: the region's name, "" where there is only one, and whether it is drained.

    `is_ready` is whether a model has started.
    """

    region: str = ""
    is_ready: bool = True
    is_drained: bool = False


class FrontDoor:
    """Plain ASGI around the application.

    `others` returns the addresses of all replicas that this one knows, `standing` how it stands now. A question without
    a front's proof goes on to the application, which has no such path.
    """

    def __init__(
        self,
        app: ASGIApp,
        trust: FrontTrust,
        others: Callable[[], Collection[str]],
        standing: Callable[[], ReplicaStanding] = ReplicaStanding,
    ) -> None:
        self._app = app
        self._trust = trust
        self._others = others
        self._standing = standing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a front's question, or pass the request on."""
        if scope["type"] == "http":
            if scope["path"] == QUESTION_PATH and (nonce := self._proved_nonce(scope)) is not None:
                await self._introduce(scope, nonce, send)
                return
            for name, value in scope["headers"]:
                if name == _ID_HEADER:
                    scope[REQUEST_ID] = self._trust.request_id_of(value)
        await self._app(scope, receive, send)

    def _proved_nonce(self, scope: Scope) -> str | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        nonce = headers.get(NONCE_HEADER, "")
        return nonce if is_same(headers.get(PROOF_HEADER, ""), self._trust.prove_question(nonce)) else None

    async def _introduce(self, scope: Scope, nonce: str, send: Send) -> None:
        server = scope.get("server") or ("", 0)
        said = {"port": server[1], "ingresses": sorted(self._others()), **asdict(self._standing())}
        body = orjson.dumps(said)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (PROOF_HEADER.encode(), self._trust.prove_answer(nonce, body).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
